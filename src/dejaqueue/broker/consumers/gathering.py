"""Stored rows as the batches that users see: deliveries and peeks.

Room: broker. Runs on the threads that send, not on the workers; what is at hand, on the loop of
lanes, too.
Holds: columns are in the order of the schemas; rows that are gone are left out, and so are those
whose payload cannot be read now; whatever bytes are stored, the texts that leave are UTF-8 (rule
15), and the payloads those that were sent (rule 22).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.consumers.held_lease import SentRows
from dejaqueue.broker.consumers.row_reader import (
    DAMAGE,
    NoRows,
    RowReader,
    read_in_parts,
    read_stored,
)
from dejaqueue.engine.arrays import Int64s, UInt16s, Words
from dejaqueue.engine.effects import Leased
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import TEXT_COLUMNS, Entry
from dejaqueue.log_rate import LogRate
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import packing
from dejaqueue.schema.messages import DEFAULT_PRIORITY, DELIVERY, PEEK, UNREAD
from dejaqueue.schema.references import marked_rows

Number = TypeVar("Number", np.int64, np.uint16)


log = logging.getLogger("dejaqueue.broker")

AT_HAND_ROWS_MAX = 16
"""Rows that are sent from memory, if they came a moment ago: for more of them a read costs little
for each."""
UNREAD_MS = 1_000
"""Before a delivery that could not be read is tried again."""
_unread = LogRate(10, 60)
_PAYLOAD = DELIVERY.names.index("payload")
_ID, _ATTEMPTS = DELIVERY.names.index("id"), DELIVERY.names.index("attempts")
_HEADERS, _TAGS = DELIVERY.field("headers").type, DELIVERY.field("tags").type
# Not made of a list: pyarrow would import pandas for that, if it is there.
_NONE = pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in DELIVERY], schema=DELIVERY)


class _LeasedRows:
    """Reads leased rows: where they were when they were leased, or where they were copied to since.

    A copy can be read before the row that it is of is freed, and is told of before; so of the rows
    that are not there, those that are live are found among the copies, the oldest first.
    """

    def __init__(self, pushes: Sequence[Push], sequences: Int64s) -> None:
        self._pushes = pushes
        self._sequences = sequences

    @property
    def place(self) -> str:
        """See RowReader."""
        return self._pushes[0].journal.place

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        journal = self._pushes[0].journal
        stored = journal.read(locators, columns)
        if not stored.column("payload").null_count:
            return stored
        for push in self._pushes:
            for copied, places in push.copies:
                is_gone = stored.column("payload").is_null().to_numpy(zero_copy_only=False)
                wanted = is_gone & np.isin(self._sequences, copied)
                if wanted.any():
                    at = copied.searchsorted(self._sequences[wanted])
                    found = journal.read(places[at], columns)
                    indices = np.arange(stored.num_rows)
                    indices[wanted] = stored.num_rows + np.arange(found.num_rows)
                    stored = pa.concat_batches([stored, found]).take(pa.array(indices))
        return stored


class EntryRows:
    """Reads rows of an entry that is in memory."""

    place = ""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        rows = locators & (limits.BATCH_ROWS_MAX - 1)
        first, count = int(rows[0]), len(rows)
        if count == 1 or (rows[1:] - rows[:-1] == 1).all():
            return columns_of(self._entry, columns, first, count)
        return columns_of(self._entry, columns, 0, self._entry.rows).take(pa.array(rows))


def columns_of(entry: Entry, columns: Sequence[str], first: int, count: int) -> pa.RecordBatch:
    """Columns of rows of an entry that follow each other, as views; null where it has none."""
    arrays: list[pa.Array] = []
    for name in columns:
        kind = pa.binary() if name == "payload" else pa.utf8()
        column = entry.texts.get(name)
        if column is None:
            arrays.append(_nulls(kind, count))
            continue
        offsets = pa.py_buffer(np.ascontiguousarray(column.offsets, np.int32))
        buffers = [None, offsets, pa.py_buffer(column.data)]
        arrays.append(pa.Array.from_buffers(kind, count, buffers, 0, first))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    return _few_nulls(kind, count) if count <= AT_HAND_ROWS_MAX else pa.nulls(count, kind)


@lru_cache(64)
def _few_nulls(kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind)


def message_columns(
    journal: RowReader,
    ids: Int64s,
    dues_ms: Int64s,
    attempts: UInt16s,
    locators: Int64s,
    priorities: UInt16s | None = None,
    groups: pa.StringArray | None = None,
) -> list[pa.Array]:
    """The columns of DELIVERY for these messages, in its order.

    Args:
        priorities: None = all have the default.
        groups: where they changed since they were stored; None = as stored.
    """
    rows = len(ids)
    stored = read_stored(journal, locators)
    key, group, tags, headers, payload = stored.columns
    if headers.null_count == rows:
        header_maps = _nulls(_HEADERS, rows)
    else:
        header_maps = packing.unpack_headers(headers)
    if priorities is None:
        priorities = np.full(rows, DEFAULT_PRIORITY, dtype=np.uint16)
    tag_lists = _nulls(_TAGS, rows) if tags.null_count == rows else packing.unpack_tags(tags)
    return [
        pa.array(ids),
        pa.array(dues_ms),
        pa.array(attempts),
        key,
        group if groups is None else groups,
        pa.array(priorities),
        tag_lists,
        header_maps,
        payload,
    ]


def delivery_batches(pushes: list[Push]) -> list[pa.RecordBatch]:
    """The batch of each dispatch, schema DELIVERY, in dispatch order; some may be empty.

    It waits for the payload store where a payload is there. Rows that are left out give the credit
    back that they took.

    Args:
        pushes: of one partition: their rows are read in one go, which costs hardly more than one.
    """
    return [whole_batch(*pair) for pair in zip(pushes, stored_batches(pushes), strict=True)]


def readable_batches(pushes: list[Push], now_ms: int) -> list[pa.RecordBatch]:
    """As `delivery_batches`; rows that cannot be read now are left out, and given back with their
    credit. Whoever gets them next, after UNREAD_MS, may be luckier.

    Args:
        now_ms: UTC milliseconds.
    """
    if len(pushes) == 1 and is_at_hand(pushes[0], now_ms):
        return [batch_at_hand(pushes[0])]
    try:
        batches = delivery_batches(pushes)
    except DejaQError:
        left = partial(_not_read, now_ms=now_ms)
        batches = [
            _undamaged(push, lambda part: delivery_batches([part])[0], left) for push in pushes
        ]
    for push, batch in zip(pushes, batches, strict=True):
        if 0 < batch.num_rows < len(push.leased.sequences):
            _note_sent(push, batch)
    return batches


def _note_sent(push: Push, batch: pa.RecordBatch) -> None:
    """Only a part of a lease goes to the consumer: who settles the lease means that part."""
    if push.consumer is not None and not push.is_done:
        ids, attempts = batch.column(_ID).to_numpy(), batch.column(_ATTEMPTS).to_numpy()
        sent = SentRows(ids & limits.SEQUENCE_MAX, attempts)
        dispatcher = push.consumer.dispatcher
        dispatcher.sent_in_part(push.consumer, push.partition, push.leased.lease_id, sent)


def acked_batch(push: Push, now_ms: int) -> pa.RecordBatch:
    """As `stored_batches`, of rows that are acked before they are sent; of those that are damaged
    nobody hears any more, but for the log.

    Args:
        now_ms: UTC milliseconds.
    """
    return _undamaged(
        push, lambda part: stored_batches([part])[0], partial(_not_read, now_ms=now_ms)
    )


def salvaged(push: Push, now_ms: int) -> tuple[Push, pa.RecordBatch] | None:
    """What can be read of a push that could not be read as a whole, as `stored_batches`; rows that
    are damaged are given back with their credit.

    Args:
        now_ms: UTC milliseconds.

    Returns:
        The push of these rows alone, of which there may be none, and their batch; None = there are
        none, and not because of damage: nothing was given back.
    """
    lost: list[tuple[Push, DejaQError]] = []
    batch = _undamaged(
        push, lambda part: stored_batches([part])[0], lambda part, why: lost.append((part, why))
    )
    if not batch.num_rows and not all(isinstance(error, DAMAGE) for _, error in lost):
        return None
    for part, error in lost:
        _not_read(part, error, now_ms)
    gone = [row for part, _ in lost for row in part.leased.sequences.tolist()]
    stays = np.flatnonzero(~np.isin(push.leased.sequences, gone))
    return replace(push, leased=_rows_of(push.leased, stays), kept=[]), batch


def _undamaged(
    push: Push,
    read: Callable[[Push], pa.RecordBatch],
    left: Callable[[Push, DejaQError], None],
) -> pa.RecordBatch:
    """What can be read of a push.

    Args:
        left: told of what cannot, and why.
    """
    leased = push.leased
    count = leased.sequences.size

    def part_of(rows: slice) -> Push:
        if rows.stop - rows.start == count:
            return push
        return replace(push, leased=_rows_of(leased, rows), kept=[])

    def lost(rows: slice, error: DejaQError) -> pa.RecordBatch:
        left(part_of(rows), error)
        return _NONE

    def read_part(rows: slice) -> pa.RecordBatch:
        try:
            return read(part_of(rows))
        except DAMAGE:
            raise
        except DejaQError as error:
            return lost(rows, error)

    # A row that was copied since may be read in another entry than those that lay beside it.
    is_copied = bool(push.copies)
    entries = np.arange(count) if is_copied else leased.locators >> limits.ROW_BITS
    parts = read_in_parts(entries, read_part, lost)
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _rows_of(leased: Leased, rows: slice | Int64s) -> Leased:
    return replace(
        leased,
        sequences=leased.sequences[rows],
        attempts=leased.attempts[rows],
        dues_ms=leased.dues_ms[rows],
        locators=leased.locators[rows],
        priorities=None if leased.priorities is None else leased.priorities[rows],
        groups=None if leased.groups is None else leased.groups.take(rows),
    )


def _not_read(push: Push, error: DejaQError, now_ms: int) -> None:
    """Give the rows of a push back, and say why."""
    left_out = _unread.admit(None, now_ms / 1_000)
    if left_out is not None:  # it is tried again each second, as long as a bucket is away
        more = f" ({left_out} such lines were left out)" if left_out else ""
        log.error("a delivery could not be read: %s%s", error, more)
    if push.consumer is not None and not push.is_done:
        dispatcher = push.consumer.dispatcher
        again_ms = max(now_ms + UNREAD_MS, int(push.leased.dues_ms.max()))  # rule 2: leased ahead
        dispatcher.could_not_read(push.consumer, push.partition, push.leased, again_ms)


def whole_batch(push: Push, stored: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `stored_batches` with the payloads themselves; waits for the payload store."""
    batch = stored if push.payloads is None else push.payloads.fetched(stored)
    gone = len(push.leased.sequences) - batch.num_rows
    if gone and push.consumer is not None:
        push.consumer.dispatcher.give_back(push.consumer, gone)
    return batch


def waits_for_store(batch: pa.RecordBatch) -> bool:
    """Whether `whole_batch` may have to wait for the payload store."""
    return bool(marked_rows(batch.column(_PAYLOAD)).size)


def stored_batches(pushes: list[Push]) -> list[pa.RecordBatch]:
    """As `delivery_batches`, with payloads as they are stored: some may be references. Does not
    wait for the payload store."""
    try:
        return _kept_batches(pushes) or _read_batches(pushes)
    except DejaQError:
        # Its partition was closed meanwhile: whoever closes it has read all of this before.
        kept = _kept_batches(pushes)
        if not kept:
            raise
        return kept


def is_at_hand(push: Push, now_ms: int) -> bool:
    """Whether its rows need no read, at this time, UTC milliseconds: the sooner after they were
    leased the likelier."""
    return push.entry is not None and now_ms < push.leased.lease_end_ms


def batch_at_hand(push: Push) -> pa.RecordBatch:
    """The batch of a push with an entry, schema DELIVERY. Waits for nothing."""
    assert push.entry is not None
    leases = [push.leased]
    columns = message_columns(
        EntryRows(push.entry),
        push.leased.sequences | (push.partition << limits.SEQUENCE_BITS),
        push.leased.dues_ms,
        push.leased.attempts,
        push.leased.locators,
        _priorities(leases),
        _groups(leases),
    )
    return pa.RecordBatch.from_arrays(columns, schema=DELIVERY)


def keep(pushes: list[Push], bytes_max: int) -> int:
    """Read what senders have not read yet, before the journal is closed.

    Args:
        pushes: of one partition, in any order.
        bytes_max: so much is kept at most.

    Returns:
        Of how many pushes nothing was kept: their leases run out.
    """
    byte_count = left = 0
    for push in pushes:
        if push.kept:
            continue
        if byte_count >= bytes_max:
            left += 1
            continue
        [batch] = _read_batches([push])
        byte_count += batch.nbytes
        push.kept.append(batch)
    return left


def _kept_batches(pushes: list[Push]) -> list[pa.RecordBatch]:
    """What was read before, if that is all of them; empty = not all of it was."""
    kept = [push.kept[0] for push in pushes if push.kept]
    return kept if len(kept) == len(pushes) else []


def _read_batches(pushes: list[Push]) -> list[pa.RecordBatch]:
    first_push, leases = pushes[0], [push.leased for push in pushes]
    sequences = _joined([leased.sequences for leased in leases])
    columns = message_columns(
        _LeasedRows(pushes, sequences),
        sequences | (first_push.partition << limits.SEQUENCE_BITS),
        _joined([leased.dues_ms for leased in leases]),
        _joined([leased.attempts for leased in leases]),
        _joined([leased.locators for leased in leases]),
        _priorities(leases),
        _groups(leases),
    )
    whole = pa.RecordBatch.from_arrays(columns, schema=DELIVERY)
    batches, first = [], 0
    for leased in leases:
        batch = whole.slice(first, len(leased.sequences))
        first += batch.num_rows
        payload = batch.column(_PAYLOAD)
        if first_push.payloads is not None:
            first_push.payloads.note(payload, leased.locators)
        if payload.null_count:
            # The lease ended and somebody else finished the row before it was sent.
            batch = batch.filter(payload.is_valid())
        batches.append(batch)
    return batches


def _priorities(leases: list[Leased]) -> UInt16s | None:
    """The priorities of all rows; the first message that has one comes at some time."""
    if all(leased.priorities is None for leased in leases):
        return None
    return _joined(
        [
            np.full(leased.sequences.size, DEFAULT_PRIORITY, dtype=np.uint16)
            if leased.priorities is None
            else leased.priorities
            for leased in leases
        ]
    )


def text_of(words: Words) -> pa.StringArray:
    """A dictionary as a text column; null where the text is empty."""
    names = pa.array([name or None for name in words.names], pa.utf8())
    return names.take(pa.array(words.indices))


def _groups(leases: list[Leased]) -> pa.StringArray | None:
    """The groups of all rows, where they changed since they were stored."""
    if any(leased.groups is None for leased in leases):
        return None
    return pa.concat_arrays([text_of(leased.groups) for leased in leases if leased.groups])


def _joined(parts: list[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class PeekState(NamedTuple):
    """Of the messages of a peek: the state of each, and who has it; None = nobody has any, or it
    is not known of any."""

    states: Sequence[str]
    consumers: Sequence[str | None] | None = None


def peek_batch(
    journal: RowReader,
    ids: Int64s,
    dues_ms: Int64s,
    attempts: UInt16s,
    locators: Int64s,
    standing: PeekState,
    priorities: UInt16s | None = None,
    groups: pa.StringArray | None = None,
) -> pa.RecordBatch:
    """The batch of a peek, schema PEEK, with payloads as they are stored. Where rows are damaged
    they have nothing that is stored, and the column UNREAD says why."""
    peeked = _PeekRows(journal, ids, dues_ms, attempts, locators, priorities, groups)
    columns, reasons = peeked.columns()
    states = pa.array(standing.states, pa.utf8())
    names = pa.array(standing.consumers or [None] * len(states), pa.utf8())
    batch = pa.RecordBatch.from_arrays([*columns, states, names], schema=PEEK)
    told = pa.array(reasons, UNREAD.type)
    if columns[-1].null_count:  # finished since the look, or damaged
        there = pc.or_(columns[-1].is_valid(), told.is_valid())
        batch, told = batch.filter(there), told.filter(there)
    if told.null_count == len(told):
        return batch
    payload = pa.field("payload", pa.binary())
    batch = batch.set_column(_PAYLOAD, payload, batch.column(_PAYLOAD))
    return batch.append_column(UNREAD, told)


class _PeekRows(NamedTuple):
    """Rows of a page, and what the partition knows of them."""

    journal: RowReader
    ids: Int64s
    dues_ms: Int64s
    attempts: UInt16s
    locators: Int64s
    priorities: UInt16s | None
    groups: pa.StringArray | None

    def columns(self) -> tuple[list[pa.Array], list[str | None]]:
        """The columns of DELIVERY, and why what is stored of a row cannot be read."""
        parts = read_in_parts(self.locators >> limits.ROW_BITS, self._stored, self._lost)
        if len(parts) == 1:
            return parts[0]
        columns = [pa.concat_arrays(pair) for pair in zip(*(one for one, _ in parts), strict=True)]
        return columns, [reason for _, reasons in parts for reason in reasons]

    def _stored(self, rows: slice) -> tuple[list[pa.Array], list[str | None]]:
        return self._read(self.journal, rows), [None] * (rows.stop - rows.start)

    def _lost(self, rows: slice, damage: DejaQError) -> tuple[list[pa.Array], list[str | None]]:
        return self._read(NoRows(), rows), [damage.told()] * (rows.stop - rows.start)

    def _read(self, journal: RowReader, rows: slice) -> list[pa.Array]:
        return message_columns(
            journal,
            self.ids[rows],
            self.dues_ms[rows],
            self.attempts[rows],
            self.locators[rows],
            None if self.priorities is None else self.priorities[rows],
            None if self.groups is None else self.groups[rows],
        )
