"""Peek: messages as they are, without leasing, page by page.

Room: broker. Asks each partition's worker for rows, reads their stored columns on the caller's
thread.
Holds: a page costs the same wherever it lies, and no page keeps a worker longer than a few
milliseconds: one for which much has to be looked through comes back short, with where to go on.
See: docs/wire.md for the ticket; browse.py for what can be asked.

What waits in a timeline, or is leased in it, comes by (due or lease end, id) over all partitions.
In other kinds of topics, and for other states, pages come by id: messages that are ready there lie
in the order they are handed out, which is no order to look them up by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.calls.browse import answer_of, followed, is_by_time, parse_selection, whole
from dejaqueue.broker.consumers.gathering import PeekState, peek_batch, text_of
from dejaqueue.broker.partition.keys import find_in
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.engine.arrays import Int64s, UInt8s, UInt16s, Words
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import BadRequest
from dejaqueue.model import MessageState
from dejaqueue.schema.messages import NEXT, PEEK

PAGE_ENTRIES_MAX = 32_768
"""Entries of the order index looked at for one page: about two milliseconds of work."""
_WAITING_OR_LEASED = (MessageState.SCHEDULED, MessageState.LEASED)
_BY_TIME = (_WAITING_OR_LEASED, (MessageState.SCHEDULED,))
_STATE_NAMES = np.array([state.name.lower() for state in MessageState])


@dataclass(frozen=True, slots=True)
class Ticket:
    """A checked peek.

    Attributes:
        selection: which messages.
        limit: rows at most.
        after: due time and id of the last row before; -1 as due time where pages are by id.
        ids, keys: only these; None = all.
        partitions: where to look.
    """

    selection: Selection
    limit: int
    after: tuple[int, int]
    ids: Int64s | None
    keys: pa.StringArray | None
    partitions: range


class Named(Protocol):
    """What asks for messages by name."""

    @property
    def selection(self) -> Selection: ...  # noqa: D102
    @property
    def ids(self) -> Int64s | None: ...  # noqa: D102
    @property
    def keys(self) -> pa.StringArray | None: ...  # noqa: D102


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
    lease_ids: Int64s

    def batch(self, topic: ServedView, number: int) -> pa.RecordBatch:
        """With what is stored of them, schema PEEK; with UNREAD, if a payload cannot be read."""
        core, dispatcher = topic.partitions[number].core, topic.dispatcher
        lease_ids = self.lease_ids.tolist()
        names = dispatcher.names_of(core.number, set(lease_ids) - {-1})
        consumers = [names.get(lease_id) for lease_id in lease_ids] if names else None
        page = peek_batch(
            followed(topic, number, self.ids & limits.SEQUENCE_MAX, self.locators),
            self.ids,
            self.dues_ms,
            self.attempts,
            self.locators,
            PeekState(_STATE_NAMES[self.states].tolist(), consumers),
            self.priorities,
            None if self.groups is None else text_of(self.groups),
        )
        return page if core.payloads is None else core.payloads.shown(page)


def parse(
    values: dict[str, Any], places: ServedPartitions, now_ms: int, owner: str | None = None
) -> Ticket:
    """The checked ticket; BadRequest names what is wrong."""
    ids, keys = values.get("ids"), values.get("keys")
    id_array, key_array = parse_names(ids, keys)
    partitions = places.numbers
    if values.get("partition") is not None:
        number = whole(values, "partition", 0, limits.PARTITIONS_MAX)
        places.check("partition", number)
        partitions = range(number, number + 1)
    return Ticket(
        selection=parse_selection(values, now_ms, _WAITING_OR_LEASED, owner),
        limit=min(whole(values, "limit", 100, 1 << 40), limits.PEEK_ROWS_MAX),
        after=_parse_after(values.get("after")),
        ids=id_array,
        keys=key_array,
        partitions=partitions,
    )


def parse_names(ids: object, keys: object) -> tuple[Int64s | None, pa.StringArray | None]:
    """The ids and keys that are asked for, None = all. Raises BadRequest."""
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
    return id_array, key_array


def _parse_after(after: object) -> tuple[int, int]:
    if after is None:
        return -1, -1
    if isinstance(after, dict) and "id" in after and set(after) <= {"due", "id"}:
        due_ms, message_id = after.get("due", -1), after["id"]
        if all(type(value) is int and -1 <= value < 1 << 63 for value in (due_ms, message_id)):
            return due_ms, message_id
    raise BadRequest("after", "the `next` of the page before, or an object with due and id", after)


def peek(
    topic: ServedView, values: dict[str, Any], now_ms: int, owner: str | None = None
) -> pa.RecordBatch:
    """A page of a topic's messages, schema PEEK; where the next begins is in its metadata. Where
    payloads cannot be read, with the column UNREAD.

    Args:
        owner: only those that this sender sent; None = anybody's.
    """
    ticket = parse(values, topic.partitions, now_ms, owner)
    following: dict[str, int] | None = None
    parts: Found = []
    is_named = ticket.ids is not None or ticket.keys is not None
    by_time = is_by_time(topic) and ticket.selection.states in _BY_TIME
    if is_named:
        parts = _named_rows(topic, ticket)
    elif ticket.limit and by_time:
        parts, following = _rows_by_time(topic, ticket)
    elif ticket.limit:
        parts, following = _rows_by_id(topic, ticket)
    batches = [rows.batch(topic, number) for number, rows in parts if len(rows.ids)]
    tables = [pa.Table.from_batches([batch]) for batch in batches] or [PEEK.empty_table()]
    table = pa.concat_tables(tables, promote_options="permissive")
    if len(batches) > 1 and (by_time or is_named):
        table = table.sort_by([("due", "ascending"), ("id", "ascending")])
    if not table.num_rows:
        page = pa.RecordBatch.from_pylist([], PEEK)
    else:
        page = table.combine_chunks().to_batches()[0]
    if following is None:
        return page
    return page.replace_schema_metadata({NEXT: json.dumps(following)})


Found = list[tuple[int, Rows]]
"""Numbers of partitions, and what was found there."""


def _rows_of(core: PartitionCore, sequences: Int64s) -> Rows:
    engine = core.engine
    return Rows(
        sequences | (core.number << limits.SEQUENCE_BITS),
        engine.dues(sequences),
        engine.attempts(sequences),
        engine.locators(sequences),
        engine.states(sequences),
        engine.priorities(sequences),
        engine.moved_groups(sequences),
        engine.lease_ids(sequences),
    )


# --- by (due, id) -------------------------------------------------------------------------------


def _rows_by_time(topic: ServedView, ticket: Ticket) -> tuple[Found, dict[str, int] | None]:
    """The first rows of all partitions together, and where the next page begins."""

    def look(core: PartitionCore) -> tuple[Rows, tuple[int, int] | None]:
        sequences, reached = core.engine.page(
            ticket.selection,
            after=_after_in(core.number, ticket.after),
            limit=ticket.limit,
            rows_max=PAGE_ENTRIES_MAX,
        )
        rows = _rows_of(core, sequences)
        if reached is None:
            return rows, None
        return rows, (reached[0], reached[1] | (core.number << limits.SEQUENCE_BITS))

    futures = {number: topic.look(number, look) for number in ticket.partitions}
    looked = [(number, *answer_of(future)) for number, future in futures.items()]
    end = min((reached for _, _, reached in looked if reached is not None), default=None)
    ids = np.concatenate([rows.ids for _, rows, _ in looked])
    dues_ms = np.concatenate([rows.dues_ms for _, rows, _ in looked])
    order = np.lexsort((ids, dues_ms))
    if end is not None:
        ends_before = (dues_ms < end[0]) | ((dues_ms == end[0]) & (ids <= end[1]))
        order = order[ends_before[order]]
    if len(order) > ticket.limit:
        order = order[: ticket.limit]
        end = (int(dues_ms[order[-1]]), int(ids[order[-1]])) if len(order) else ticket.after
    found, first = [], 0
    for number, rows, _ in looked:
        chosen = np.sort(order[(order >= first) & (order < first + len(rows.ids))]) - first
        first += len(rows.ids)
        found.append((number, _taken(rows, chosen)))
    return found, None if end is None else {"due": end[0], "id": end[1]}


def _taken(rows: Rows, places: Int64s) -> Rows:
    """Some of these rows."""
    groups = rows.groups
    return Rows(
        rows.ids[places],
        rows.dues_ms[places],
        rows.attempts[places],
        rows.locators[places],
        rows.states[places],
        None if rows.priorities is None else rows.priorities[places],
        None if groups is None else Words(groups.names, groups.indices[places]),
        rows.lease_ids[places],
    )


def _after_in(partition: int, after: tuple[int, int]) -> tuple[int, int]:
    """The pair in this partition after which the page begins."""
    due_ms, message_id = after
    if message_id < 0:
        return due_ms, -1
    # In (due, id) order a lower partition's messages of the same due time came before.
    after_partition = message_id >> limits.SEQUENCE_BITS
    if after_partition == partition:
        return due_ms, message_id & limits.SEQUENCE_MAX
    return due_ms, limits.SEQUENCE_MAX if after_partition > partition else -1


# --- by id --------------------------------------------------------------------------------------


def _rows_by_id(topic: ServedView, ticket: Ticket) -> tuple[Found, dict[str, int] | None]:
    """Rows of one partition after the other, and where the next page begins."""
    first_id = ticket.after[1] + 1
    parts: Found = []
    left = ticket.limit
    for number in ticket.partitions:
        base = number << limits.SEQUENCE_BITS
        if first_id >> limits.SEQUENCE_BITS > number:
            continue
        first = max(first_id - base, 0)
        if left <= 0:
            return parts, {"id": base + first - 1}
        future = topic.look(
            number,
            lambda core, first=first, left=left: _look_by_id(core, ticket, first, left),  # type: ignore[misc]
        )
        rows, following = answer_of(future)
        parts.append((number, rows))
        left -= len(rows.ids)
        if following is not None:
            return parts, {"id": base + following - 1}
    return parts, None


def _look_by_id(
    core: PartitionCore, ticket: Ticket, first: int, limit: int
) -> tuple[Rows, int | None]:
    engine = core.engine
    sequences, following = engine.find(
        ticket.selection,
        first=first,
        end=engine.next_sequence,
        limit=limit,
        rows_max=limits.BROWSE_ROWS_MAX,
    )
    return _rows_of(core, sequences), following


# --- by name ------------------------------------------------------------------------------------


def _named_rows(topic: ServedView, ticket: Ticket) -> Found:
    """The rows of the ids or keys asked for that are selected."""
    futures = {
        number: topic.look(number, lambda core: _rows_of(core, named(topic, core, ticket)))
        for number in ticket.partitions
    }
    return [(number, answer_of(future)) for number, future in futures.items()]


def named(topic: ServedView, core: PartitionCore, ticket: Named) -> Int64s:
    """Sequences of the ids or keys asked for that are selected, in this partition."""
    engine = core.engine
    if ticket.ids is not None:
        mine = ticket.ids[ticket.ids >> limits.SEQUENCE_BITS == core.number]
        sequences = mine & limits.SEQUENCE_MAX
    else:
        assert ticket.keys is not None
        hashes = hash_column(text_column(ticket.keys))
        mine_mask = np.zeros(len(hashes), dtype=np.bool_)
        for count in topic.route.counts:
            mine_mask |= topic.partitions.homes(hashes, count) == core.number
        keys = ticket.keys.filter(pa.array(mine_mask))
        found = find_in(core, keys, hashes[mine_mask])
        sequences = np.zeros(0, np.int64) if found is None else found[found >= 0]
    selected: Int64s = sequences[engine.selected(sequences, ticket.selection)]
    return selected
