"""Redrive: dead letters go back to where they came from, or elsewhere, a page in a call.

Room: broker. Picks letters by what their headers say; the way back is that of dead_letters.py: a
letter that leaves is dead in its topic until its message is durable in the other one, so that
nothing is lost by a crash, and nothing is there twice.
Holds: a letter that a consumer has, or whose key a live message has at its destination, stays.
See: rule 18; docs/guides/failures.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.calls.browse import answer_of
from dejaqueue.broker.calls.peek import peek
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.peers import KEYS
from dejaqueue.broker.topic.route import split_rows
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Cancel, Depart
from dejaqueue.errors import BadRequest, Elsewhere, Unavailable
from dejaqueue.model import RowStatus
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import dead_letters as letters
from dejaqueue.schema.messages import NEXT, UNREAD
from dejaqueue.topic_names import (
    check_served_name,
    check_topic_name,
    parse_shard,
    shard_name,
    topic_of,
)

PAGE_ROWS = 2_048
"""Letters looked at in one call: what it takes is well below any timeout."""
PAGE_ROWS_UNKNOWN = 256
"""… while nobody knows how large their payloads are."""
PAGE_BYTES = 32 << 20
"""Payload bytes of a page, about."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters go where.

    Attributes:
        to: a topic; None = where each came from.
        drop: they are thrown away instead.
        reason, group: only those; None = any.
    """

    topic: str
    to: str | None
    drop: bool
    reason: str | None
    group: str | None
    limit: int


def parse(values: dict[str, Any]) -> Choice:
    """The checked choice; BadRequest names what is wrong."""
    for name in ("to", "reason", "group"):
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            raise BadRequest(name, "a text", value)
    topic = check_served_name(values.get("topic"))
    if values.get("to") is not None:
        check_topic_name(values["to"])
    if values.get("to") == topic_of(topic):
        raise BadRequest("to", "another topic", topic)
    limit = PAGE_ROWS if values.get("limit") is None else values["limit"]
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise BadRequest("limit", "a whole number, not negative", limit)
    drop = values.get("drop", False)
    if not isinstance(drop, bool) or (drop and values.get("to") is not None):
        raise BadRequest("drop", "true or false, and not together with `to`", drop)
    return Choice(
        topic,
        values.get("to"),
        drop,
        values.get("reason"),
        values.get("group"),
        min(limit, PAGE_ROWS),
    )


def redrive(
    broker: BrokerPort, values: dict[str, Any], may_receive: Callable[[str], bool] = lambda _: True
) -> dict[str, Any]:
    """Send the chosen letters of one page away.

    Args:
        values: `topic`, the dead-letter topic; `to`, `drop`, `reason`, `group`: see Choice; `ids`:
            only these; `limit`: letters to send at most; `after`: where the page begins, or None.
        may_receive: says whether the caller may send letters to a topic; others stay.

    Returns:
        `moved`: letters that are on their way, or gone, durably; `left`: letters that were chosen
        but stay, as they have no origin, or it is gone, or their key is taken there, or a consumer
        has them, or their payload cannot be read now;
        `next`: `after` for the next page, None = this was the last.

    Raises:
        TopicUnknown: there is no such topic, or no topic `to`.
    """
    choice = parse(values)
    topic = broker.runtime(choice.topic)
    rows_max = _rows_max(topic)
    ticket: dict[str, Any] = {"topic": choice.topic, "limit": rows_max, "state": "scheduled"}
    for name in ("ids", "after", "group"):
        if values.get(name) is not None:
            ticket[name] = values[name]
    page = peek(topic, ticket, broker.clock.utc_ms())
    following = (page.schema.metadata or {}).get(NEXT)
    chosen = page.filter(_mask(page, choice))
    unread = 0
    if not choice.drop and UNREAD.name in page.schema.names:  # these stay
        readable = chosen.filter(chosen["payload"].is_valid()).drop_columns([UNREAD.name])
        unread, chosen = chosen.num_rows - readable.num_rows, readable
    if chosen.num_rows > choice.limit:
        chosen = chosen.slice(0, choice.limit)
    if choice.drop:
        moved = _throw_away(broker, choice, chosen)
    else:
        moved = _send(broker, choice, chosen, may_receive)
    left = chosen.num_rows + unread - moved
    return {"moved": moved, "left": left, "next": following and json.loads(following)}


def _rows_max(topic: ServedTopic) -> int:
    """Letters of a page: their payloads are read with them."""
    means = [partition.core.mean_payload_bytes for partition in topic.partitions]
    if not any(means):
        return PAGE_ROWS_UNKNOWN
    return max(1, min(PAGE_ROWS, PAGE_BYTES // max(1, *means)))


def _mask(page: pa.RecordBatch, choice: Choice) -> pa.BooleanArray:
    """Which rows were chosen."""
    mask = pa.array(np.ones(page.num_rows, dtype=np.bool_))
    if choice.reason is not None:
        reasons = letters.header_value(page["headers"], letters.REASON)
        mask = pc.and_(mask, pc.equal(reasons, choice.reason).fill_null(False))
    if choice.group is not None:
        groups = page["group"].fill_null("")
        mask = pc.and_(mask, pc.equal(groups, choice.group))
    return mask


def _send(
    broker: BrokerPort, choice: Choice, chosen: pa.RecordBatch, may_receive: Callable[[str], bool]
) -> int:
    """Send each to its destination; return how many went."""
    if not chosen.num_rows:
        return 0
    ids = chosen["id"].to_numpy()
    if choice.to is not None:
        origins = np.full(chosen.num_rows, choice.to, dtype=object)
    else:
        found = letters.header_value(chosen["headers"], letters.ORIGIN)
        origins = found.fill_null("").to_numpy(zero_copy_only=False)
    here = broker.runtime(choice.topic).topic
    known = {topic.name for topic in broker.topics() if topic.spread == here.spread} - {here.name}
    if choice.to is not None and broker.topic(choice.to).spread != here.spread:
        limit = f"a topic of spread {here.spread}, as {here.name}"
        raise BadRequest("to", limit, choice.to)
    moved = 0
    for name in filter(may_receive, sorted(known & set(origins.tolist()))):
        mask = origins == name
        mask &= ~_is_taken(broker, choice.topic, name, chosen)
        moved += _apply(broker, choice.topic, ids[mask], name)
    return moved


def _is_taken(
    broker: BrokerPort, topic: str, destination: str, chosen: pa.RecordBatch
) -> np.ndarray[Any, Any]:
    """Of which letters a live message of the destination has the key; bool array, shape (n,)."""
    keys = letters.header_value(chosen["headers"], letters.KEY)
    wanted = pc.unique(keys.drop_null())
    if not len(wanted):
        return np.zeros(chosen.num_rows, dtype=np.bool_)
    shard = parse_shard(topic)  # what comes back goes to the same one
    name = destination if shard is None else shard_name(destination, *shard[1:])
    live = pa.array(_live_keys(broker, name, wanted.to_pylist()), pa.utf8())
    taken: np.ndarray[Any, Any] = np.asarray(pc.is_in(keys, value_set=live))
    return taken


def _live_keys(broker: BrokerPort, topic: str, keys: list[str]) -> list[str]:
    """Those of the keys that a live message has, whichever broker serves the topic."""
    body = {"topic": topic, "keys": keys}
    try:
        return live_keys(broker, body)
    except Elsewhere as other:
        if broker.peers is None or not other.url:
            raise
        url = other.url
    # Its Elsewhere must not be ours: whoever called would look for the letters there.
    try:
        return [str(key) for key in broker.peers.ask(url, KEYS, body).result()["keys"]]
    except (Elsewhere, CancelledError) as moved:
        raise Unavailable(f"topic {topic} is on its way to another broker: {moved}", 50) from None


def live_keys(broker: BrokerPort, body: dict[str, Any]) -> list[str]:
    """Those of the keys that a live message of a topic has that is served here. Raises BadRequest,
    TopicUnknown, Elsewhere."""
    ticket = {"topic": body["topic"], "keys": body["keys"]}
    live = peek(broker.runtime(body["topic"]), ticket, broker.clock.utc_ms())
    found: list[str] = live["key"].drop_null().to_pylist()
    return found


def _throw_away(broker: BrokerPort, choice: Choice, chosen: pa.RecordBatch) -> int:
    """Cancel these; return how many."""
    return _apply(broker, choice.topic, chosen["id"].to_numpy(), None)


def _apply(broker: BrokerPort, topic: str, ids: Int64s, destination: str | None) -> int:
    """Have these leave, to nowhere if `destination` is None; return how many did, durably."""
    if not len(ids):
        return 0
    served, leaving = broker.runtime(topic), []
    for partition, rows in split_rows(ids >> limits.SEQUENCE_BITS):
        sequences = np.ascontiguousarray(ids[rows] & limits.SEQUENCE_MAX)
        leaving.append(served.change(partition, partial(_leave, sequences, destination)))
    return sum(answer_of(future) for future in leaving)


def _leave(sequences: Int64s, destination: str | None, core: PartitionCore) -> int:
    """On the partition's worker."""
    now_ms = core.now_ms()
    command: Cancel | Depart = Cancel(now_ms, sequences)
    if destination is not None:
        command = Depart(now_ms, sequences, destination)
    effects = core.apply(command)
    if effects.statuses is None:
        return len(sequences)
    return int(np.count_nonzero(effects.statuses == RowStatus.OK))
