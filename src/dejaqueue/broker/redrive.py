"""Redrive: dead letters go back to where they came from, or elsewhere, a page in a call.

Room: broker. Picks letters by what their headers say; the way back is that of dead_letters.py: a
letter that leaves is dead in its topic until its message is durable in the other one, so that
nothing is lost by a crash, and nothing is there twice.
Holds: a letter that a consumer has, or whose key a live message has at its destination, stays.
See: rule 18; docs/guides/failures.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dejaqueue import limits
from dejaqueue.broker import entries
from dejaqueue.broker.partition import Partition
from dejaqueue.broker.writer import split_rows
from dejaqueue.engine.commands import Depart, Int64s
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus, check_topic_name
from dejaqueue.schema import dead_letters as letters
from dejaqueue.wire.descriptors import check_fields

if TYPE_CHECKING:
    from dejaqueue.broker.broker import Broker

FIELDS = ["topic", "to", "reason", "group", "ids", "limit", "after"]
PAGE_ROWS = 2_048
"""Letters looked at in one call: what it takes is well below any timeout."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters go where.

    Attributes:
        to: a topic; None = where each came from.
        reason, group: only those; None = any.
    """

    topic: str
    to: str | None
    reason: str | None
    group: str | None
    limit: int


def parse(values: dict[str, Any]) -> Choice:
    """The checked choice; BadRequest names what is wrong."""
    check_fields(values, FIELDS)
    for name in ("to", "reason", "group"):
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            raise BadRequest(name, "a text", value)
    topic = check_topic_name(values.get("topic"))
    if values.get("to") is not None:
        check_topic_name(values["to"])
    if values.get("to") == topic:
        raise BadRequest("to", "another topic", topic)
    limit = PAGE_ROWS if values.get("limit") is None else values["limit"]
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise BadRequest("limit", "a whole number, not negative", limit)
    return Choice(
        topic, values.get("to"), values.get("reason"), values.get("group"), min(limit, PAGE_ROWS)
    )


def redrive(broker: Broker, values: dict[str, Any]) -> dict[str, Any]:
    """Send the chosen letters of one page away.

    Args:
        values: `topic`, the dead-letter topic; `to`, `reason`, `group`: see Choice; `ids`: only
            these; `limit`: letters to send at most; `after`: the page before's, or None.

    Returns:
        `moved`: letters that are on their way, durably; `left`: letters that were chosen but stay,
        as they have no origin, or their key is taken there, or a consumer has them; `after`: where
        the next page begins, None = this was the last.

    Raises:
        TopicUnknown: there is no such topic, or one that letters came from is gone.
    """
    choice = parse(values)
    named = {name: values[name] for name in ("ids", "after") if values.get(name) is not None}
    rows_max = len(values["ids"]) if isinstance(values.get("ids"), list) else PAGE_ROWS
    page = broker.peek({"topic": choice.topic, "state": "scheduled", "limit": rows_max, **named})
    last = page.num_rows - 1
    ended = last + 1 < rows_max or "ids" in named
    after = None if ended else {"due": page["due"][last].as_py(), "id": page["id"][last].as_py()}
    chosen = page.filter(_mask(page, choice))
    if chosen.num_rows > choice.limit:
        chosen = chosen.slice(0, choice.limit)
    moved = _send_away(broker, choice, chosen)
    return {"moved": moved, "left": chosen.num_rows - moved, "after": after}


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


def _send_away(broker: Broker, choice: Choice, chosen: pa.RecordBatch) -> int:
    """Send each to its destination; how many went."""
    if not chosen.num_rows:
        return 0
    ids = chosen["id"].to_numpy()
    if choice.to is not None:
        origins = np.full(chosen.num_rows, choice.to, dtype=object)
    else:
        found = letters.header_value(chosen["headers"], letters.ORIGIN)
        origins = found.fill_null("").to_numpy(zero_copy_only=False)
    names = sorted(set(origins.tolist()) - {"", choice.topic})
    for name in names:
        broker.topic(name)
    moved = 0
    for name in names:
        mask = origins == name
        mask &= ~_is_taken(broker, name, chosen)
        for partition, rows in split_rows(ids[mask] >> limits.SEQUENCE_BITS):
            sequences = ids[mask][rows] & limits.SEQUENCE_MAX
            moved += _depart(broker, choice.topic, partition, sequences, name)
    return moved


def _is_taken(broker: Broker, destination: str, chosen: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """Of which letters a live message of the destination has the key; bool array, shape (n,)."""
    keys = letters.header_value(chosen["headers"], letters.KEY)
    wanted = pc.unique(keys.drop_null())
    if not len(wanted):
        return np.zeros(chosen.num_rows, dtype=np.bool_)
    live = broker.peek({"topic": destination, "keys": wanted.to_pylist()})
    taken: np.ndarray[Any, Any] = np.asarray(pc.is_in(keys, value_set=live["key"].drop_null()))
    return taken


def _depart(broker: Broker, topic: str, partition: int, sequences: Int64s, destination: str) -> int:
    """Have these leave one partition; how many did, durably."""

    def leave(place: Partition) -> int:
        command = Depart(place.now_ms(), np.ascontiguousarray(sequences), destination)
        effects = place.engine.apply(command)
        place.commits.group.add(entries.to_entry(command), effects)
        place.commits.commit_all()
        if effects.statuses is None:
            return len(sequences)
        return int(np.count_nonzero(effects.statuses == RowStatus.OK))

    return broker.runtime(topic).look(partition, leave).result(60)
