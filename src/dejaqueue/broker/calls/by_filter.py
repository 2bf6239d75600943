"""Moving and cancelling by filter: many messages, named by what they are.

Room: broker. Walks through each partition in the order of the table and changes what it finds, one
command of some thousand messages at a time.
Holds: each message is changed once at most, also by a shift that moves it on into what is still to
be looked at; what was sent after a partition's walk began is not touched; what a call has answered
is durable; nothing that is leased in any view is changed; a message that several subscriptions have
is chosen by what it is in the first that has it, and counted once (rule 20).
See: engine/selection.py for the walk; docs/guides/browsing.md.

A call does a piece of the work and answers how to go on, so that none takes long. If its answer is
lost, whether that piece was done is not known: a cancel, or a move to a fixed time, may just be
asked for again; a shift may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.calls.browse import STATES, answer_of, parse_selection, tally, whole
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.commands import Cancel, Move
from dejaqueue.engine.selection import DUE_END_MS, Selection
from dejaqueue.engine.table import SCHEDULED
from dejaqueue.errors import BadRequest
from dejaqueue.wire.descriptors import check_fields

CALL_COMMANDS_MAX = 32
"""Commands of one call; a caller that wants more comes again."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the messages.

    Attributes:
        cancel: they are cancelled; nothing else counts then.
        due_ms: their new due time; None = stays.
        by_ms: they are due so much later, or earlier if negative.
        priority, group: the new ones; None = stays.
    """

    cancel: bool = False
    due_ms: int | None = None
    by_ms: int = 0
    priority: int | None = None
    group: str | None = None

    def command(self, now_ms: int, sequences: Int64s, dues_ms: Int64s) -> Move | Cancel:
        """The command for these messages, which are due at `dues_ms` now."""
        if self.cancel:
            return Cancel(now_ms, sequences)
        rows = sequences.size
        new_dues_ms = priorities = groups = None
        if self.due_ms is not None:
            new_dues_ms = np.full(rows, self.due_ms, dtype=np.int64)
        elif self.by_ms:
            new_dues_ms = np.clip(dues_ms + self.by_ms, 0, limits.INSTANT_MS_MAX)
        if self.priority is not None:
            priorities = np.full(rows, self.priority, dtype=np.uint16)
        if self.group is not None:
            groups = Words((self.group,), np.zeros(rows, dtype=np.int32))
        return Move(now_ms, sequences, new_dues_ms, priorities, groups)


@dataclass(slots=True)
class _Cursor:
    """How far the walk came.

    Attributes:
        partition: the partition to go on in.
        first: the sequence to go on from.
        end: sequences from here on came in after the walk of this partition began; -1 = not begun.
    """

    partition: int
    first: int = 0
    end: int = -1

    def to_values(self) -> dict[str, int]:
        return {"partition": self.partition, "first": self.first, "end": self.end}


def _parse_cursor(values: object, partitions: ServedPartitions) -> _Cursor:
    if values is None:
        return _Cursor(partitions.numbers[0])
    if not isinstance(values, dict):
        raise BadRequest("after", "the `next` of the answer before", values)
    check_fields(values, ["partition", "first", "end"], required=("partition", "first", "end"))
    return _Cursor(
        partitions.check("partition", whole(values, "partition", 0, limits.PARTITIONS_MAX)),
        whole(values, "first", 0, limits.SEQUENCE_MAX),
        whole(values, "end", 0, limits.SEQUENCE_MAX, low=-1),
    )


def _parse_change(values: dict[str, Any]) -> Change:
    due, by_ms = values.get("due"), values.get("by_ms")
    if due is not None and by_ms is not None:
        raise BadRequest("by_ms", "due or by_ms, not both", by_ms)
    group = values.get("set_group")
    if group is not None:
        if not isinstance(group, str):
            raise BadRequest("set_group", "a text", group)
        if len(group.encode()) > limits.GROUP_BYTES_MAX:
            raise BadRequest("set_group", f"at most {limits.GROUP_BYTES_MAX} bytes", group)
    priority = values.get("set_priority")
    change = Change(
        due_ms=None if due is None else whole(values, "due", 0, limits.INSTANT_MS_MAX),
        by_ms=whole(values, "by_ms", 0, limits.INSTANT_MS_MAX, low=-limits.INSTANT_MS_MAX),
        priority=None
        if priority is None
        else whole(values, "set_priority", 0, limits.PRIORITY_MAX),
        group=group,
    )
    if change == Change():
        raise BadRequest("due", "something that changes: due, by_ms, set_priority, set_group", None)
    return change


def move_where(
    topic: ServedTopic, values: dict[str, Any], now_ms: int, owner: str | None = None
) -> dict[str, Any]:
    """Move what is selected: `{"count": changed, "next": how to go on, or None}`.

    Args:
        owner: of what this sender sent; None = anybody.
    """
    return _change(topic, values, _parse_change(values), now_ms, owner)


def cancel_where(
    topic: ServedTopic, values: dict[str, Any], now_ms: int, owner: str | None = None
) -> dict[str, Any]:
    """Cancel what is selected: `{"count": cancelled, "next": how to go on, or None}`.

    Args:
        owner: of what this sender sent; None = anybody.
    """
    return _change(topic, values, Change(cancel=True), now_ms, owner)


def _change(
    topic: ServedTopic, values: dict[str, Any], change: Change, now_ms: int, owner: str | None
) -> dict[str, Any]:
    if values.get("state") not in (None, "scheduled", "ready"):
        raise BadRequest("state", "scheduled or ready: others can't be changed", values["state"])
    selection = parse_selection(values, now_ms, STATES["scheduled"], owner)
    dry_run = values.get("dry_run", False)
    if not isinstance(dry_run, bool):
        raise BadRequest("dry_run", "true or false", dry_run)
    if dry_run:
        return {"count": _count(topic, selection), "next": None}
    cursor = _parse_cursor(values.get("after"), topic.partitions)
    count = 0
    for _ in range(CALL_COMMANDS_MAX):
        count += _step(topic, selection, change, cursor)
        if cursor.partition not in topic.partitions:
            return {"count": count, "next": None}
    return {"count": count, "next": cursor.to_values()}


def _count(topic: ServedTopic, selection: Selection) -> int:
    """How many messages would be changed."""
    if topic.topic.unnamed and not topic.subscriptions:
        # One bucket for all: the order index counts what is due within the bucket, and no more.
        return int(tally(topic, selection, DUE_END_MS, 1)[0])
    count = 0
    for number in topic.partitions.numbers:
        first: int | None = 0
        while first is not None:
            rows, first = answer_of(topic.look(number, partial(_count_some, selection, first)))
            count += rows
    return count


def _count_some(selection: Selection, first: int, core: PartitionCore) -> tuple[int, int | None]:
    """As `_change_some`, of what would be changed."""
    sequences, following = core.views.select(
        selection,
        first=first,
        end=core.engine.next_sequence,
        limit=limits.CHANGE_ROWS_MAX,
        rows_max=limits.BROWSE_ROWS_MAX,
    )
    return int(np.count_nonzero(core.views.states(sequences) == SCHEDULED)), following


def _step(topic: ServedTopic, selection: Selection, change: Change, cursor: _Cursor) -> int:
    """One command in one partition; moves the cursor on. Returns when that is durable."""
    changed = topic.change(
        cursor.partition, lambda core: _change_some(core, selection, change, cursor)
    )
    rows, following = answer_of(changed)
    if following is None:
        cursor.partition, cursor.first, cursor.end = _next(topic, cursor.partition), 0, -1
    else:
        cursor.first = following
    return rows


def _next(topic: ServedTopic, partition: int) -> int:
    """The number of the next partition that is here, -1 = that was the last."""
    left = topic.partitions.numbers[topic.partitions.at(partition) + 1 :]
    return left[0] if left else -1


def _change_some(
    core: PartitionCore, selection: Selection, change: Change, cursor: _Cursor
) -> tuple[int, int | None]:
    """Find some messages and change them, in one go; on the partition's worker.

    Returns:
        How many were changed, and where to go on.
    """
    if cursor.end < 0:
        cursor.end = core.engine.next_sequence
    sequences, following = core.views.select(
        selection,
        first=cursor.first,
        end=cursor.end,
        limit=limits.CHANGE_ROWS_MAX,
        rows_max=limits.BROWSE_ROWS_MAX,
    )
    if not sequences.size:
        return 0, following
    command = change.command(core.now_ms(), sequences, core.views.dues(sequences))
    statuses = core.apply(command).statuses
    refused = 0 if statuses is None else int(np.count_nonzero(statuses))
    return sequences.size - refused, following
