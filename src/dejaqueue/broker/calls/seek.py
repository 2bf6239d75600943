"""Seek: a subscription goes to another place among its messages, by which it gets them again.

Room: broker. Walks through the partitions in the order of sequences, one command of some thousand
messages at a time, so that nobody waits long.
Holds: what came in after the walk of a partition began is not touched; what a call has answered is
durable; what is leased stays with whoever has it, and what a filter does not select as it is.
See: engine/replay.py; rule 21; docs/guides/replay.md; wire/selection.py for the filter's fields.

A call does a piece of the work and answers how to go on. If its answer is lost, the piece may be
asked for again: what came back already is not done any more, unless somebody acked it meanwhile.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dejaqueue import limits
from dejaqueue.broker.calls.browse import STATES, answer_of, parse_selection, whole
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.engine.commands import Seek
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import BadRequest
from dejaqueue.wire.descriptors import check_fields

SPAN = 16_384
"""Sequences that one command is about."""
CALL_COMMANDS_MAX = 32
"""Commands of one call; a caller that wants more comes again."""
BEGINNING, END = "beginning", "end"
_NOW = -1


@dataclass(slots=True)
class _Cursor:
    """How far the walk came.

    Attributes:
        partition: the partition to go on in.
        first: the sequence to go on from.
        end: sequences from here on came in after the walk of this partition began; -1 = not begun.
        from_ms: the place that this partition goes to.
    """

    partition: int
    first: int = 0
    end: int = -1
    from_ms: int = 0


def _parse_cursor(values: object, partitions: ServedPartitions) -> _Cursor:
    if values is None:
        return _Cursor(partitions.numbers[0])
    names = ("partition", "first", "end", "from_ms")
    if not isinstance(values, dict):
        raise BadRequest("after", "the `next` of the answer before", values)
    check_fields(values, list(names), required=names)
    return _Cursor(
        partitions.check("partition", whole(values, "partition", 0, limits.PARTITIONS_MAX)),
        whole(values, "first", 0, limits.SEQUENCE_MAX),
        whole(values, "end", 0, limits.SEQUENCE_MAX, low=-1),
        whole(values, "from_ms", 0, limits.INSTANT_MS_MAX + 1),
    )


def parse_place(value: Any) -> int:
    """Where to: a time, or `_NOW`. Raises BadRequest."""
    if value == BEGINNING:
        return 0
    if value == END:
        return _NOW
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and 0 <= value <= limits.INSTANT_MS_MAX:
        return int(value)
    raise BadRequest("to", "beginning, end, or a time in milliseconds", value)


def seek(view: ServedView, values: dict[str, Any]) -> dict[str, Any]:
    """Go to a place, with all messages or those that the filter's fields select:
    `{"replayed": …, "passed": …, "next": how to go on, or None}`."""
    if not view.topic.unnamed:
        raise BadRequest("topic", "a subscription: the topic has no queue without a name", None)
    place = parse_place(values.get("to"))
    wanted: Selection | None = parse_selection(values, 0, STATES["scheduled"])
    wanted = None if wanted == Selection() else wanted
    cursor = _parse_cursor(values.get("after"), view.partitions)
    replayed = passed = 0
    for _ in range(CALL_COMMANDS_MAX):
        came_back, went = _step(view, place, wanted, cursor)
        replayed, passed = replayed + came_back, passed + went
        if cursor.partition not in view.partitions:
            return {"replayed": replayed, "passed": passed, "next": None}
    return {"replayed": replayed, "passed": passed, "next": asdict(cursor)}


def _step(
    view: ServedView, place: int, wanted: Selection | None, cursor: _Cursor
) -> tuple[int, int]:
    """One command in one partition; moves the cursor on. Returns when that is durable."""
    came_back, went, following = 0, 0, None
    if view.has_journal(cursor.partition):
        changed = view.change(
            cursor.partition, lambda core: _seek_some(core, place, wanted, cursor)
        )
        came_back, went, following = answer_of(changed)
    if following is None:
        later = [number for number in view.partitions.numbers if number > cursor.partition]
        cursor.partition, cursor.first, cursor.end = min(later, default=-1), 0, -1
    else:
        cursor.first = following
    return came_back, went


def _seek_some(
    core: PartitionCore, place: int, wanted: Selection | None, cursor: _Cursor
) -> tuple[int, int, int | None]:
    """How many messages came back, how many were passed over, and where to go on."""
    engine, now_ms = core.engine, core.now_ms()
    if cursor.end < 0:
        cursor.end = engine.next_sequence
        cursor.from_ms = now_ms + 1 if place == _NOW else place
    kept = core.views.retained
    first = engine.live_from(cursor.first)
    if kept is not None:
        first = min(first, kept.engine.live_from(cursor.first))
    if first >= cursor.end:
        return 0, 0, None
    replayed, acked = engine.counts.replayed, engine.counts.acked
    end = min(first + SPAN, cursor.end)
    core.apply(Seek(now_ms, first, end, cursor.from_ms, wanted))
    counts = engine.counts
    if counts.replayed > replayed:
        core.counting.came_back(end, now_ms)
    return counts.replayed - replayed, counts.acked - acked, end if end < cursor.end else None
