"""Browsing: what users may ask about many messages, checked; counts and histograms.

Room: broker. Asks each partition's worker for a short stretch at a time, so that deliveries go on
between them; adds up on the caller's thread.
Holds: no call keeps a worker longer than a few milliseconds, however many messages there are.
See: peek.py for the messages themselves, by_filter.py for changing them; docs/guides/browsing.md.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.consumers.followed_rows import FollowedRows
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.message_filter import DUE_END_MS, Selection
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.model import MessageState, TagFilter
from dejaqueue.schema.packing import UNIT
from dejaqueue.wire.descriptors import check_tags

Answer = TypeVar("Answer")

STATES = {
    "scheduled": (MessageState.SCHEDULED,),
    "ready": (MessageState.SCHEDULED,),
    "leased": (MessageState.LEASED,),
    "dead": (MessageState.DEAD,),
    "staged": (MessageState.STAGED,),
    "staged_ack": (MessageState.STAGED_ACK,),
}
"""Words for states. `ready` is what is scheduled and due by now."""
BY = ("state", "group", "tag")
WAIT_SECONDS = 60
"""How long the caller waits for a worker."""


def answer_of(future: Future[Answer]) -> Answer:
    """What a worker answered. Raises Unavailable if it does not within a minute."""
    try:
        return future.result(WAIT_SECONDS)
    except TimeoutError:
        raise Unavailable("the partition is busy", 1_000) from None


def followed(topic: ServedView, number: int, sequences: Int64s, locators: Int64s) -> FollowedRows:
    """What is stored of rows of a partition, wherever it is when it is read."""

    def find(some: Int64s) -> Int64s:
        return answer_of(topic.look(number, lambda core: core.engine.locators(some)))

    return FollowedRows(topic.partitions[number].core.journal, sequences, locators, find)


def whole(values: dict[str, Any], name: str, default: int, high: int, low: int = 0) -> int:
    """A whole number of a request's field; BadRequest if it is none."""
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequest(name, f"a whole number from {low} to {high}", value)
    return value


def parse_selection(
    values: dict[str, Any],
    now_ms: int,
    default: tuple[MessageState, ...],
    owner: str | None = None,
) -> Selection:
    """The selection of a request's fields; BadRequest names what is wrong.

    Args:
        now_ms: what is due by then is ready.
        default: the states that are meant if none is named.
        owner: only messages that this sender sent; None = anybody's.
    """
    state, group = values.get("state"), values.get("group")
    if state is not None and (not isinstance(state, str) or state not in STATES):
        raise BadRequest("state", f"one of {', '.join(STATES)}", state)
    if group is not None and not isinstance(group, str):
        raise BadRequest("group", "a text", group)
    tags = []
    for name in ("tags_any", "tags_all", "tags_none"):
        given = values.get(name) or ()
        check_tags(name, given)
        tags.append(tuple(given))
    wanted = TagFilter(*tags)
    due_to_ms = whole(values, "due_to", DUE_END_MS, DUE_END_MS)
    if state == "ready":
        due_to_ms = min(due_to_ms, now_ms + 1)
    return Selection(
        states=default if state is None else STATES[state],
        due_from_ms=whole(values, "due_from", 0, limits.INSTANT_MS_MAX),
        due_to_ms=due_to_ms,
        group=group,
        tags=None if wanted == TagFilter() else wanted,
        priority_from=whole(values, "priority_from", 0, limits.PRIORITY_MAX),
        priority_to=whole(values, "priority_to", limits.PRIORITY_MAX, limits.PRIORITY_MAX),
        sender=owner,
    )


def topic_name(values: dict[str, Any]) -> str:
    """The topic of a request. Raises BadRequest."""
    name = values.get("topic")
    if not isinstance(name, str):
        raise BadRequest("topic", "the name of a topic", name)
    return name


# --- how many -----------------------------------------------------------------------------------


def tally(topic: ServedView, selection: Selection, bucket_ms: int, bucket_count: int) -> Int64s:
    """How many selected messages are due in each bucket, exactly if none changes meanwhile.

    Partitions are looked through in stretches: a worker is free again after each of them.
    """
    counts = np.zeros(bucket_count, dtype=np.int64)
    is_plain = selection.is_plain and selection.states == (MessageState.SCHEDULED,)

    def look(core: PartitionCore, first: int) -> tuple[Int64s, int | None]:
        if not first and is_plain and is_by_time(topic):
            found, excess = _tally_index(core, selection, bucket_ms, bucket_count)
            if not excess:
                return found, None
        return core.engine.tally(
            selection,
            first=first,
            rows_max=limits.BROWSE_ROWS_MAX,
            bucket_ms=bucket_ms,
            bucket_count=bucket_count,
        )

    for number in topic.partitions.numbers:
        first: int | None = 0
        while first is not None:
            found, first = answer_of(topic.look(number, _later(look, first)))
            counts += found
    return counts


def _later(
    look: Callable[[PartitionCore, int], tuple[Int64s, int | None]], first: int
) -> Callable[[PartitionCore], tuple[Int64s, int | None]]:
    return lambda core: look(core, first)


def _tally_index(
    core: PartitionCore, selection: Selection, bucket_ms: int, bucket_count: int
) -> tuple[Int64s, int]:
    due_from_ms, due_to_ms = selection.due_from_ms, selection.due_to_ms
    return core.engine.tally_index(due_from_ms, due_to_ms, bucket_ms, bucket_count)


def is_by_time(topic: ServedView) -> bool:
    """True if the topic's order is by due time, so that an index tells what is due when."""
    return topic.topic.kind.is_by_time


def histogram(
    topic: ServedView, values: dict[str, Any], now_ms: int, owner: str | None = None
) -> dict[str, Any]:
    """How many messages are due in each stretch of time.

    Args:
        owner: of those that this sender sent; None = anybody's.

    Returns:
        `due_from`, `bucket_ms`, `counts`, and `error_max`: by how much the sum of the counts may
        be too high (0 unless `exact` is false).
    """
    selection = parse_selection(values, now_ms, STATES["scheduled"], owner)
    bucket_ms = whole(values, "bucket_ms", 0, limits.INSTANT_MS_MAX, low=1)
    span_ms = whole(values, "due_to", 0, DUE_END_MS) - selection.due_from_ms
    if span_ms <= 0:
        raise BadRequest("due_to", "after due_from", values["due_to"])
    bucket_count = -(-span_ms // bucket_ms)
    if bucket_count > limits.BUCKETS_MAX:
        raise BadRequest(
            "bucket_ms", f"at most {limits.BUCKETS_MAX} buckets from due_from to due_to", bucket_ms
        )
    exact = values.get("exact", True)
    if not isinstance(exact, bool):
        raise BadRequest("exact", "true or false", exact)
    error_max = 0
    if not exact and is_by_time(topic) and selection.is_plain and values.get("state") is None:
        counts, error_max = _rough(topic, selection, bucket_ms, bucket_count)
    else:
        counts = tally(topic, selection, bucket_ms, bucket_count)
    return {
        "due_from": selection.due_from_ms,
        "bucket_ms": bucket_ms,
        "counts": counts.tolist(),
        "error_max": error_max,
    }


def _rough(
    topic: ServedView, selection: Selection, bucket_ms: int, bucket_count: int
) -> tuple[Int64s, int]:
    """The numbers of the order index, and by how much they may be too high together."""

    def look(core: PartitionCore) -> tuple[Int64s, int]:
        return _tally_index(core, selection, bucket_ms, bucket_count)

    futures = [topic.look(number, look) for number in topic.partitions.numbers]
    found = [answer_of(future) for future in futures]
    return (
        np.sum([counts for counts, _ in found], axis=0, dtype=np.int64),
        sum(excess for _, excess in found),
    )


# --- how many of what ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a partition knows by heart."""

    states: dict[str, int]
    names: list[str]
    lives: Int64s


def counts(
    topic: ServedView, values: dict[str, Any], now_ms: int, owner: str | None = None
) -> dict[str, Any]:
    """How many live messages there are by state, or by group, or by tag.

    Args:
        owner: of those that this sender sent, by state alone; None = anybody's.

    Cost: O(groups), or O(different sets of tags); nothing for each message. Of one sender's each
        is looked at.

    Returns:
        `rows`: names and counts, most first, then by name; `next`: what to give as `after` for
        more of them, or None. By state all of them come at once.
    """
    by = values.get("by", "state")
    if by not in BY:
        raise BadRequest("by", f"one of {', '.join(BY)}", by)
    limit = whole(values, "limit", 100, limits.COUNTS_ROWS_MAX, low=1)
    after = _count_after(values.get("after"))
    if owner is not None:
        return _counts_of(topic, now_ms, by, owner)

    def look(core: PartitionCore) -> _Counted:
        engine = core.engine
        states = {name: getattr(engine.counts, name) for name in _COUNT_NAMES.values()}
        if by == "state":
            return _Counted(states | {"ready": engine.due_count(now_ms)}, [], _NONE)
        names = engine.group_counts() if by == "group" else engine.tag_set_counts()
        return _Counted(states, *names)

    futures = [topic.look(number, look) for number in topic.partitions.numbers]
    found = [answer_of(future) for future in futures]
    if by == "state":
        sums = {
            name: sum(counted.states[_COUNT_NAMES.get(name, name)] for counted in found)
            for name in STATES
        }
        return {"rows": [{"state": name, "count": sums[name]} for name in STATES], "next": None}
    names = pa.array([name for counted in found for name in counted.names], pa.utf8())
    lives = pa.array(np.concatenate([counted.lives for counted in found]))
    if by == "tag":
        names, lives = _split_sets(names, lives)
    return _most_first(by, names, lives, limit, after)


def _counts_of(topic: ServedView, now_ms: int, by: str, owner: str) -> dict[str, Any]:
    """As `counts`, of the messages of one sender."""
    if by != "state":
        raise BadRequest("by", "state, for a caller who is limited to its own messages", by)
    found = {
        name: parse_selection({"state": name}, now_ms, states, owner)
        for name, states in STATES.items()
    }
    rows = [
        {"state": name, "count": int(tally(topic, selection, 1, 1)[0])}
        for name, selection in found.items()
    ]
    return {"rows": rows, "next": None}


_COUNT_NAMES = {
    "scheduled": "scheduled",
    "leased": "leased",
    "dead": "dead",
    "staged": "staged",
    "staged_ack": "staged_acks",
}
_NONE = np.zeros(0, dtype=np.int64)


def _count_after(after: object) -> tuple[int, str] | None:
    if after is None:
        return None
    if isinstance(after, dict) and set(after) == {"count", "name"}:
        count, name = after["count"], after["name"]
        if isinstance(count, int) and isinstance(name, str):
            return count, name
    raise BadRequest("after", "the `next` of the answer before", after)


def _split_sets(names: pa.Array, lives: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Sets of tags and their counts as single tags; one that is there twice in a set is one."""
    tags: list[str] = []
    parts: list[int] = []
    for index, name in enumerate(names.to_pylist()):
        different = sorted(set(name.split(UNIT)))
        tags += different
        parts += [index] * len(different)
    return pa.array(tags, pa.utf8()), lives.take(pa.array(parts, pa.int64()))


def _most_first(
    by: str, names: pa.Array, lives: pa.Array, limit: int, after: tuple[int, str] | None
) -> dict[str, Any]:
    table = pa.table({by: names, "n": lives}).group_by(by).aggregate([("n", "sum")])
    table = table.rename_columns({by: by, "n_sum": "count"})
    if after is not None:
        count, name = after
        here, level = table["count"].to_numpy(), pa.scalar(name)
        same = (here == count) & np.asarray(pa.compute.greater(table[by], level))
        table = table.filter(pa.array((here < count) | same))
    table = table.sort_by([("count", "descending"), (by, "ascending")])
    rows = table.slice(0, limit).to_pylist()
    is_more = table.num_rows > limit
    following = {"count": rows[-1]["count"], "name": rows[-1][by]} if is_more else None
    return {"rows": rows, "next": following}
