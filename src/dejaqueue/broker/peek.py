"""Peek: messages as they are, without leasing, page by page.

Room: broker. Asks each partition's worker for rows, reads their stored columns on the caller's
thread.
Holds: a page costs the same wherever it lies; pages are in (due, id) order over all partitions.
See: docs/wire.md for the ticket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.entries import hash_column, text_column
from dejaqueue.broker.keys import find_live
from dejaqueue.broker.partition import Partition
from dejaqueue.broker.reading import peek_batch, text_of
from dejaqueue.broker.runtime import TopicRuntime
from dejaqueue.broker.writer import key_partitions
from dejaqueue.engine.commands import Int64s, UInt8s, UInt16s, Words
from dejaqueue.errors import BadRequest
from dejaqueue.model import MessageState
from dejaqueue.schema.messages import PEEK
from dejaqueue.wire.descriptors import check_fields

FIELDS = [
    "topic",
    "limit",
    "after",
    "due_from",
    "due_to",
    "state",
    "ids",
    "keys",
    "partition",
]
_STATES = {state.name.lower(): state for state in MessageState if state is not MessageState.DONE}
_STATE_NAMES = np.array([state.name.lower() for state in MessageState])


@dataclass(frozen=True, slots=True)
class Ticket:
    """A checked peek."""

    limit: int
    after: tuple[int, int]
    due_from_ms: int
    due_to_ms: int
    state: MessageState | None
    ids: Int64s | None
    keys: pa.StringArray | None
    partition: int | None


@dataclass(slots=True)
class Rows:
    """What a partition knows of the rows of a page."""

    ids: Int64s
    dues_ms: Int64s
    attempts: UInt16s
    locators: Int64s
    states: UInt8s
    priorities: UInt16s | None
    groups: Words | None


def _whole(values: dict[str, Any], name: str, default: int, high: int) -> int:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise BadRequest(name, f"a whole number from 0 to {high}", value)
    return value


def parse(values: dict[str, Any], partition_count: int) -> Ticket:
    """The checked ticket; BadRequest names what is wrong."""
    check_fields(values, FIELDS)
    after = values.get("after") or {"due": -1, "id": -1}
    if not isinstance(after, dict) or set(after) != {"due", "id"}:
        raise BadRequest("after", "an object with due and id", after)
    state = values.get("state")
    if state is not None and state not in _STATES:
        raise BadRequest("state", f"one of {', '.join(_STATES)}", state)
    ids, keys = values.get("ids"), values.get("keys")
    try:
        id_array = None if ids is None else np.array(ids, dtype=np.int64).reshape(-1)
        key_array = None if keys is None else pa.array(keys, pa.utf8())
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise BadRequest("ids or keys", "a list of ids, or of texts", ids or keys) from None
    for name, column in (("ids", id_array), ("keys", key_array)):
        if column is not None and len(column) > limits.PEEK_ROWS_MAX:
            raise BadRequest(name, f"at most {limits.PEEK_ROWS_MAX}", len(column))
    if key_array is not None and key_array.null_count:
        raise BadRequest("keys", "texts", None)
    partition = values.get("partition")
    return Ticket(
        limit=min(_whole(values, "limit", 100, 1 << 40), limits.PEEK_ROWS_MAX),
        after=(int(after["due"]), int(after["id"])),
        due_from_ms=_whole(values, "due_from", 0, limits.INSTANT_MS_MAX),
        due_to_ms=_whole(values, "due_to", limits.INSTANT_MS_MAX, limits.INSTANT_MS_MAX),
        state=None if state is None else _STATES[state],
        ids=id_array,
        keys=key_array,
        partition=None
        if partition is None
        else _whole(values, "partition", 0, partition_count - 1),
    )


def peek(topic: TopicRuntime, values: dict[str, Any]) -> pa.RecordBatch:
    """A page of a topic's messages, schema PEEK."""
    count = len(topic.partitions)
    ticket = parse(values, count)
    numbers = range(count) if ticket.partition is None else [ticket.partition]
    futures = {
        number: topic.look(number, lambda place: _rows(place, ticket, count)) for number in numbers
    }
    batches = []
    for number, future in futures.items():
        rows = future.result(60)
        if len(rows.ids):
            states = _STATE_NAMES[rows.states].tolist()
            batches.append(
                peek_batch(
                    topic.partitions[number].journal,
                    rows.ids,
                    rows.dues_ms,
                    rows.attempts,
                    rows.locators,
                    states,
                    rows.priorities,
                    None if rows.groups is None else text_of(rows.groups),
                )
            )
    table = pa.Table.from_batches(batches, PEEK)
    if len(batches) > 1:
        table = table.sort_by([("due", "ascending"), ("id", "ascending")])
    if ticket.ids is None and ticket.keys is None:
        table = table.slice(0, ticket.limit)
    return (
        table.combine_chunks().to_batches()[0]
        if table.num_rows
        else pa.RecordBatch.from_pylist([], PEEK)
    )


def _rows(place: Partition, ticket: Ticket, partition_count: int) -> Rows:
    """The page's rows of one partition; on its worker."""
    engine = place.engine
    base = place.number << limits.SEQUENCE_BITS
    sequences = _named(place, ticket, partition_count)
    if sequences is None:
        sequences = _page(place, ticket)
    return Rows(
        sequences | base,
        engine.dues(sequences),
        engine.attempts(sequences),
        engine.locators(sequences),
        engine.states(sequences),
        engine.priorities(sequences),
        engine.moved_groups(sequences),
    )


def _page(place: Partition, ticket: Ticket) -> Int64s:
    """The next page of this partition, in (due, sequence) order; a leased one is due at its end."""
    engine = place.engine
    after_due_ms, after_id = ticket.after
    after_sequence = after_id & limits.SEQUENCE_MAX if after_id >= 0 else -1
    # In (due, id) order a lower partition's messages of the same due time came before.
    after_partition = after_id >> limits.SEQUENCE_BITS if after_id >= 0 else place.number
    if after_partition != place.number:
        after_sequence = limits.SEQUENCE_MAX if after_partition > place.number else -1
    if (after_due_ms, after_sequence) < (ticket.due_from_ms, -1):
        after_due_ms, after_sequence = ticket.due_from_ms, -1
    pages = []
    if ticket.state in (None, MessageState.SCHEDULED):
        pages.append(engine.page)
    if ticket.state in (None, MessageState.LEASED):
        pages.append(engine.leased_page)
    found = [
        page(
            after_due_ms=after_due_ms,
            after_sequence=after_sequence,
            until_ms=ticket.due_to_ms,
            limit=ticket.limit,
        )
        for page in pages
    ]
    sequences = np.concatenate(found)
    order = np.lexsort((sequences, engine.dues(sequences)))
    return sequences[order][: ticket.limit]


def _named(place: Partition, ticket: Ticket, partition_count: int) -> Int64s | None:
    """Sequences of the ids or keys asked for that are live here; None if none were asked for."""
    engine = place.engine
    if ticket.ids is not None:
        mine = ticket.ids[ticket.ids >> limits.SEQUENCE_BITS == place.number]
        sequences = mine & limits.SEQUENCE_MAX
    elif ticket.keys is not None:
        hashes = hash_column(text_column(ticket.keys))
        mine_mask = key_partitions(hashes, partition_count) == place.number
        keys = ticket.keys.filter(pa.array(mine_mask))
        rows, candidates = engine.find_keys(hashes[mine_mask])
        found = find_live(engine, place.journal, keys, rows, candidates)
        sequences = found[found >= 0]
    else:
        return None
    states = engine.states(sequences)
    live_mask = states != MessageState.DONE
    if ticket.state is not None:
        live_mask &= states == ticket.state
    live: Int64s = sequences[live_mask]
    return live
