"""Stored rows as the batches that users see: deliveries and peeks.

Room: broker. Runs on the threads that send, not on the workers.
Holds: columns are in the order of the schemas; rows that are gone are left out, and so are those
whose payload cannot be read now; whatever bytes are stored, the texts that leave are UTF-8 (rule
15), and the payloads those that were sent (rule 22).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.engine.arrays import Int64s, UInt16s, Words
from dejaqueue.engine.effects import Leased
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import TEXT_COLUMNS, Journal
from dejaqueue.log_rate import LogRate
from dejaqueue.schema import packing, texts
from dejaqueue.schema.messages import DEFAULT_PRIORITY, DELIVERY, PEEK
from dejaqueue.schema.references import marked_rows

Number = TypeVar("Number", np.int64, np.uint16)


log = logging.getLogger("dejaqueue.broker")

UNREAD_MS = 1_000
"""Before a delivery that could not be read is tried again."""
_unread = LogRate(10, 60)
_PAYLOAD = DELIVERY.names.index("payload")
# Not made of a list: pyarrow would import pandas for that, if it is there.
_NONE = pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in DELIVERY], schema=DELIVERY)


class RowReader(Protocol):
    """A journal, or what its worker reads by."""

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        ...


def read_stored(
    journal: RowReader, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS
) -> pa.RecordBatch:
    """Stored columns of these rows, for whoever is outside.

    A version before this let texts in that are not UTF-8. They have U+FFFD where they are no text:
    as they are, everybody who reads the rows beside them would fail on them, for ever.
    """
    stored = journal.read(locators, columns)
    clean = all(
        name == "payload" or texts.is_clean(column)
        for name, column in zip(columns, stored.columns, strict=True)
    )
    return stored if clean else texts.mended_batch(stored)


class _LeasedRows:
    """Reads leased rows: where they were when they were leased, or where they were copied to since.

    A copy can be read before the row that it is of is freed, and is told of before; so of the rows
    that are not there, those that are live are found among the copies, the oldest first.
    """

    def __init__(self, pushes: Sequence[Push], sequences: Int64s) -> None:
        self._pushes = pushes
        self._sequences = sequences

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
        header_maps = pa.nulls(rows, DELIVERY.field("headers").type)
    else:
        header_maps = packing.unpack_headers(headers)
    if priorities is None:
        priorities = np.full(rows, DEFAULT_PRIORITY, dtype=np.uint16)
    if tags.null_count == rows:
        tag_lists = pa.nulls(rows, DELIVERY.field("tags").type)
    else:
        tag_lists = packing.unpack_tags(tags)
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
    """As `delivery_batches`; what cannot be read now is given back with its credit, and the batch
    is empty. Whoever gets it next, after UNREAD_MS, may be luckier.

    Args:
        now_ms: UTC milliseconds.
    """
    try:
        return delivery_batches(pushes)
    except DejaQError as error:
        if len(pushes) > 1:  # perhaps but one of them
            return [batch for push in pushes for batch in readable_batches([push], now_ms)]
        [push] = pushes
        left_out = _unread.admit(None, now_ms / 1_000)
        if left_out is not None:  # it is tried again each second, as long as a bucket is away
            more = f" ({left_out} such lines were left out)" if left_out else ""
            log.error("a delivery could not be read: %s%s", error, more)
        if push.consumer is not None and not push.is_done:
            push.consumer.dispatcher.could_not_read(push.consumer, push, now_ms + UNREAD_MS)
        return [_NONE]


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
    journal: Journal,
    ids: Int64s,
    dues_ms: Int64s,
    attempts: UInt16s,
    locators: Int64s,
    standing: PeekState,
    priorities: UInt16s | None = None,
    groups: pa.StringArray | None = None,
) -> pa.RecordBatch:
    """The batch of a peek, schema PEEK, with payloads as they are stored."""
    columns = message_columns(journal, ids, dues_ms, attempts, locators, priorities, groups)
    states = pa.array(standing.states, pa.utf8())
    names = pa.array(standing.consumers or [None] * len(states), pa.utf8())
    batch = pa.RecordBatch.from_arrays([*columns, states, names], schema=PEEK)
    if columns[-1].null_count:
        batch = batch.filter(columns[-1].is_valid())
    return batch
