"""Moving and cancelling by filter: many messages, named by what they are.

Room: broker. Walks through each partition in the order of the table and changes what it finds, some
commands of a few thousand messages at a time: as many as keep the worker for a few milliseconds.
The next ones are asked for as soon as these are applied, and become durable meanwhile.
Holds: each message is changed once at most, also by a shift that moves it on into what is still to
be looked at; what was sent after a partition's walk began is not touched; what a call has answered
is durable; nothing that is leased in any view is changed; a message that several subscriptions have
is chosen by what it is in the first that has it, and counted once (rule 20).
See: engine/selection.py for the walk; window.py for moves into a window; docs/guides/browsing.md.

A call does a piece of the work and answers how to go on, so that none takes long. If its answer is
lost, whether that piece was done is not known: a cancel, or a move to a fixed time, may just be
asked for again; a shift may not. A move into a window may, best from its beginning: then it is
even over all that is selected. A piece of it that was done, and is asked for again, leaves all in
the window, some of them closer together than they need to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.calls.browse import STATES, answer_of, parse_selection, tally, whole
from dejaqueue.broker.calls.window import Places, Window, parse_window, times_of
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.commands import Cancel, Move
from dejaqueue.engine.message_filter import DUE_END_MS, Selection
from dejaqueue.engine.table import SCHEDULED
from dejaqueue.errors import BadRequest
from dejaqueue.wire.descriptors import check_fields

CALL_COMMANDS_MAX = 128
"""Commands of one call; a caller that wants more comes again."""
STRETCH_US = 2_000
"""No command is begun in a stretch that has taken so long: other topics have the same worker."""
STRETCH_COMMANDS_MAX = 8
"""… nor after so many, however fast they are: what was applied is to become durable."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the messages.

    Attributes:
        cancel: they are cancelled; nothing else counts then.
        due_ms: their new due time; None = stays.
        by_ms: they are due so much later, or earlier if negative.
        window: they are due evenly over it, in the order that they have.
        priority, group: the new ones; None = stays.
    """

    cancel: bool = False
    due_ms: int | None = None
    by_ms: int = 0
    window: Window | None = None
    priority: int | None = None
    group: str | None = None

    def command(
        self, now_ms: int, sequences: Int64s, dues_ms: Int64s, times_ms: Int64s | None = None
    ) -> Move | Cancel:
        """The command for these messages, which are due at `dues_ms` now.

        Args:
            times_ms: their times in the window, if there is one.
        """
        if self.cancel:
            return Cancel(now_ms, sequences)
        rows = sequences.size
        new_dues_ms, priorities, groups = times_ms, None, None
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
        places: of a move into a window the places of this partition; None = not counted yet.
    """

    partition: int
    first: int = 0
    end: int = -1
    places: Places | None = None

    def to_values(self) -> dict[str, Any]:
        values = {"partition": self.partition, "first": self.first, "end": self.end}
        return values if self.places is None else values | {"places": self.places.to_values()}


def _parse_cursor(values: object, partitions: ServedPartitions) -> _Cursor:
    if values is None:
        return _Cursor(partitions.numbers[0])
    if not isinstance(values, dict):
        raise BadRequest("after", "the `next` of the answer before", values)
    required = ("partition", "first", "end")
    check_fields(values, [*required, "places"], required=required)
    return _Cursor(
        partitions.check("partition", whole(values, "partition", 0, limits.PARTITIONS_MAX)),
        whole(values, "first", 0, limits.SEQUENCE_MAX),
        whole(values, "end", 0, limits.SEQUENCE_MAX, low=-1),
        Places.from_values(values["places"]) if "places" in values else None,
    )


def _parse_change(values: dict[str, Any]) -> Change:
    due, by_ms = values.get("due"), values.get("by_ms")
    if due is not None and by_ms is not None:
        raise BadRequest("by_ms", "due or by_ms, not both", by_ms)
    window = parse_window(values)
    if window is not None and (due, by_ms) != (None, None):
        raise BadRequest("window_from", "a window, due or by_ms, one of them", window.from_ms)
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
        window=window,
        priority=None
        if priority is None
        else whole(values, "set_priority", 0, limits.PRIORITY_MAX),
        group=group,
    )
    if change == Change():
        limit = "something that changes: due, by_ms, window_from, set_priority, set_group"
        raise BadRequest("due", limit, None)
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
    call = _FilterCall(
        topic, selection, change, _parse_cursor(values.get("after"), topic.partitions)
    )
    return {"count": call.go(CALL_COMMANDS_MAX), "next": call.following()}


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
    """How many of some messages would be changed, and where to go on."""
    sequences, following = core.views.select(
        selection,
        first=first,
        end=core.engine.next_sequence,
        limit=limits.SLAB_ROWS,
        rows_max=limits.BROWSE_ROWS_MAX,
    )
    return int(np.count_nonzero(core.views.states(sequences) == SCHEDULED)), following


class _Stretch(NamedTuple):
    """What was done of one partition in one go.

    Attributes:
        rows: messages that were changed.
        commands: which it took.
        following: where to go on; None = the partition is done.
    """

    rows: int
    commands: int
    following: int | None


@dataclass(slots=True)
class _FilterCall:
    """One call: from its cursor on, which it moves."""

    topic: ServedTopic
    selection: Selection
    change: Change
    cursor: _Cursor

    def go(self, commands_max: int) -> int:
        """So many commands at most; how many messages they changed. Returns when they are durable.

        An empty partition counts as one.
        """
        count, on_their_way = 0, []
        while commands_max > 0 and self.cursor.partition in self.topic.partitions:
            if self._begins():
                changing = self.topic.change_ahead(
                    self.cursor.partition, partial(_change_some, self, commands_max)
                )
                on_their_way.append(changing.durable)
                stretch = answer_of(changing.applied)
            else:
                stretch = _Stretch(0, 1, None)
            count += stretch.rows
            commands_max -= stretch.commands
            self._move_on(stretch.following)
        for durable in on_their_way:
            answer_of(durable)
        return count

    def following(self) -> dict[str, Any] | None:
        """How to go on; None = that was all."""
        is_over = self.cursor.partition not in self.topic.partitions
        return None if is_over else self.cursor.to_values()

    def _begins(self) -> bool:
        """False if nothing is selected in the cursor's partition, which only a window knows."""
        if self.change.window is None:
            return True
        if self.cursor.places is None:
            self.cursor.places = _places(self.topic, self.selection, self.cursor)
        return self.cursor.places is not None

    def _move_on(self, following: int | None) -> None:
        cursor = self.cursor
        if following is not None:
            cursor.first = following
            return
        cursor.partition, cursor.first, cursor.end = _next(self.topic, cursor.partition), 0, -1
        cursor.places = None


def _next(topic: ServedTopic, partition: int) -> int:
    """The number of the next partition that is here, -1 = that was the last."""
    left = topic.partitions.numbers[topic.partitions.at(partition) + 1 :]
    return left[0] if left else -1


def _places(topic: ServedTopic, selection: Selection, cursor: _Cursor) -> Places | None:
    """The places of a partition in a window; its walk begins. None = nothing is selected in it.

    Raises:
        BadRequest: more is selected than due times are kept of at once.
    """
    dues_ms: list[Int64s] = []
    first: int | None = 0
    while first is not None:
        look = partial(_dues_some, selection, first, cursor.end)
        some_ms, first, cursor.end = answer_of(topic.look(cursor.partition, look))
        dues_ms.append(some_ms)
        count = sum(one.size for one in dues_ms)
        if count > limits.WINDOW_ROWS_MAX:
            limit = f"at most {limits.WINDOW_ROWS_MAX} messages of one partition into a window"
            raise BadRequest("window_from", limit, count)
    return Places.of(np.concatenate(dues_ms)) if count else None


def _dues_some(
    selection: Selection, first: int, end: int, core: PartitionCore
) -> tuple[Int64s, int | None, int]:
    """When some of the selected messages are due; where to go on, and where to end."""
    end = core.engine.next_sequence if end < 0 else end
    sequences, following = core.views.select(
        selection,
        first=first,
        end=end,
        limit=limits.SLAB_ROWS,
        rows_max=limits.BROWSE_ROWS_MAX,
    )
    waiting = sequences[core.views.states(sequences) == SCHEDULED]
    return core.views.dues(waiting), following, end


def _change_some(call: _FilterCall, commands_max: int, core: PartitionCore) -> _Stretch:
    """Find some messages and change them, in one go; on the partition's worker."""
    began_us, rows, commands = core.clock.now_us(), 0, 0
    following: int | None = call.cursor.first
    while following is not None and commands < min(commands_max, STRETCH_COMMANDS_MAX):
        if commands and core.clock.now_us() - began_us >= STRETCH_US:
            break
        changed, following = _change_piece(call, following, core)
        rows += changed
        commands += 1
    return _Stretch(rows, commands, following)


def _change_piece(call: _FilterCall, first: int, core: PartitionCore) -> tuple[int, int | None]:
    """One command; how many it changed, and where to go on."""
    change, cursor = call.change, call.cursor
    if cursor.end < 0:
        cursor.end = core.engine.next_sequence
    sequences, following = core.views.select(
        call.selection,
        first=first,
        end=cursor.end,
        limit=limits.CHANGE_ROWS_MAX,
        rows_max=limits.BROWSE_ROWS_MAX,
    )
    if change.window is not None:  # what is leased in some view has no place
        sequences = sequences[core.views.states(sequences) == SCHEDULED]
    if not sequences.size:
        return 0, following
    dues_ms, times_ms = core.views.dues(sequences), None
    if change.window is not None:
        assert cursor.places is not None
        places = cursor.places.take(dues_ms)
        which = core.number, max(call.topic.topic.partitions, core.number + 1)
        times_ms = times_of(change.window, places, cursor.places.count, *which)
    command = change.command(core.now_ms(), sequences, dues_ms, times_ms)
    statuses = core.apply(command).statuses
    refused = 0 if statuses is None else int(np.count_nonzero(statuses))
    return sequences.size - refused, following
