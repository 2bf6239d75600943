"""Parcels: dead messages that travel together, and the columns that they become where they arrive.

Room: broker. Read and made on the carrier's thread; pure but for the journal.
Holds: a parcel of the same rows is the same when it is made again, so it is recognised where it
arrived before (rule 10); a letter has a key of its own (rule 11) and all headers of its message.
See: dead_letters.py, which packs them; schema/dead_letters.py for headers and keys.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.consumers.gathering import text_of
from dejaqueue.broker.consumers.row_reader import DAMAGE, NoRows, read_stored
from dejaqueue.engine.arrays import Int64s, UInt16s, Words
from dejaqueue.engine.dictionary import of_runs, to_runs
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import TEXT_COLUMNS, Journal
from dejaqueue.model import Topic
from dejaqueue.schema import dead_letters as letters
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.references import payload_bytes
from dejaqueue.schema.text_columns import text_bytes, text_offsets
from dejaqueue.topic_names import parse_subscription

# Letters that travel together: enough for 100,000 a second, little enough to stay unnoticed.
PARCEL_ROWS_MAX = 2_048
PARCEL_BYTES_MAX = 8 << 20


class RowsDamagedError(JournalDamaged):
    """The first rows of a parcel cannot be read.

    Attributes:
        rows: how many: those of one entry.
    """

    def __init__(self, text: str, rows: int) -> None:
        super().__init__(text)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Parcel:
    """Dead messages of one partition that travel together; arrays have one length.

    Attributes:
        topic: where they died, or leave.
        destination: the topic they go to; "" = the dead-letter topic.
        groups: texts of now, where they are not those that are stored.
        reasons: why each died.
        deaths_ms: when.
        senders: who sent each; None = nobody.
    """

    topic: Topic
    partition: int
    destination: str
    sequences: Int64s
    attempts: UInt16s
    locators: Int64s
    priorities: UInt16s | None
    groups: Words | None
    reasons: Words
    deaths_ms: Int64s
    senders: Words | None = None

    def first(self, rows: int) -> Parcel:
        """The first rows of it."""
        if rows == len(self.sequences):
            return self
        return replace(
            self,
            sequences=self.sequences[:rows],
            attempts=self.attempts[:rows],
            locators=self.locators[:rows],
            priorities=None if self.priorities is None else self.priorities[:rows],
            groups=None if self.groups is None else _first(self.groups, rows),
            senders=None if self.senders is None else _first(self.senders, rows),
            reasons=_first(self.reasons, rows),
            deaths_ms=self.deaths_ms[:rows],
        )

    def number(self) -> int:
        """A batch number of its content: equal parcels have equal ones, after a restart, too."""
        digest = hashlib.blake2b(digest_size=8)
        for column in (self.sequences, self.deaths_ms):
            digest.update(np.ascontiguousarray(column).tobytes())
        return int.from_bytes(digest.digest(), "little") >> 1


def _first(words: Words, rows: int) -> Words:
    return Words(words.names, words.indices[:rows])


def kept_senders(parcel: Parcel, rows: Int64s | None = None) -> Words | None:
    """Who sent these rows of a parcel, None = all: a letter is its message's sender's."""
    senders = parcel.senders
    if senders is None:
        return None
    return of_runs(to_runs(senders if rows is None else senders.take(rows)))


def read_rows(parcel: Parcel, journal: Journal) -> pa.RecordBatch:
    """Stored columns of the first rows of a parcel: as many as travel at once.

    Rows that are not where they were a moment ago end it: they were copied elsewhere; so do those
    that are damaged. How many rows it takes depends on that and their sizes alone, so that a parcel
    is the same when it is sent again.

    Raises:
        RowsDamagedError: the first ones are.
    """
    step = max(1, 4 * PARCEL_BYTES_MAX // max(1, parcel.topic.max_payload_bytes))
    parts: list[pa.RecordBatch] = []
    byte_count = first = 0
    while first < len(parcel.locators) and byte_count < PARCEL_BYTES_MAX:
        asked = min(step, len(parcel.locators) - first)
        part = _readable(journal, parcel.locators[first : first + step], raises=not parts)
        payloads = part.column(TEXT_COLUMNS.index("payload"))
        rows = part.num_rows
        if payloads.null_count:
            rows = int(np.flatnonzero(np.asarray(payloads.is_null()))[0])
        if byte_count + text_bytes(payloads) > PARCEL_BYTES_MAX:
            ends = text_offsets(payloads)[1:] - text_offsets(payloads)[0]
            fitting = int(np.searchsorted(ends, PARCEL_BYTES_MAX - byte_count, "right"))
            rows = min(rows, max(fitting, 0 if parts else 1))
        parts.append(part.slice(0, rows))
        first += rows
        byte_count += text_bytes(payloads)
        if rows < asked:
            break
    if not first:
        return parts[0].slice(0, 0)
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _readable(journal: Journal, locators: Int64s, *, raises: bool) -> pa.RecordBatch:
    """The stored columns of these rows, or of those before the first that is damaged.

    Args:
        raises: if that is the first of all.
    """
    try:
        return read_stored(journal, locators)
    except DAMAGE as damage:
        positions = locators >> limits.ROW_BITS
        if positions[0] == positions[-1] and (positions == positions[0]).all():
            if raises:
                raise RowsDamagedError(damage.told(), len(locators)) from damage
            return NoRows().read(locators[:0])
    middle = int(np.flatnonzero(positions != positions[0])[0])
    middle = max(middle, len(locators) // 2)
    part = _readable(journal, locators[:middle], raises=raises)
    if part.num_rows < middle:
        return part
    rest = _readable(journal, locators[middle:], raises=False)
    return pa.concat_batches([part, rest])


def _texts(stored: pa.RecordBatch, name: str) -> pa.StringArray:
    return stored.column(TEXT_COLUMNS.index(name)).fill_null("")


def _send_columns(
    parcel: Parcel,
    stored: pa.RecordBatch,
    now_ms: int,
    keys: pa.StringArray,
    headers: pa.StringArray,
) -> SendColumns:
    rows = stored.num_rows
    groups = _texts(stored, "group")
    if parcel.groups is not None:
        groups = text_of(parcel.groups).fill_null("")
    payloads = stored.column(TEXT_COLUMNS.index("payload"))

    def some(texts: pa.StringArray) -> pa.StringArray | None:
        return texts if text_bytes(texts) else None

    return SendColumns(
        rows=rows,
        dues_ms=np.full(rows, now_ms, dtype=np.int64),
        payloads=payloads,
        keys=some(keys),
        groups=some(groups),
        tags=some(_texts(stored, "tags")),
        headers=some(headers),
        partitions=None,
        payload_bytes=payload_bytes(payloads),
        priorities=parcel.priorities,
    )


def letter_columns(parcel: Parcel, stored: pa.RecordBatch, now_ms: int) -> SendColumns:
    """The dead letters of these messages.

    A letter has a key of its own, made of origin, id and time of death: sent twice, it is there
    once. Headers of the death come on top of what a message may have of them.
    """
    origin, _ = parse_subscription(parcel.topic.name)
    ids = pa.array(parcel.sequences | (parcel.partition << limits.SEQUENCE_BITS)).cast(pa.utf8())
    died_at = pa.array(parcel.deaths_ms).cast(pa.utf8())
    deaths = letters.Deaths(
        text_of(parcel.reasons).fill_null(""),
        pa.array(parcel.attempts).cast(pa.utf8()),
        origin,
        ids,
        died_at,
        _texts(stored, "key"),
    )
    headers = letters.with_death(_texts(stored, "headers"), deaths)
    keys = letters.letter_keys(parcel.topic.name, ids, died_at)
    return _send_columns(parcel, stored, now_ms, keys, headers)


def returned_columns(parcel: Parcel, stored: pa.RecordBatch, now_ms: int) -> SendColumns:
    """The messages that these letters were, as they were sent; due now."""
    headers = _texts(stored, "headers")
    keys = letters.packed_value(headers, letters.KEY)
    return _send_columns(parcel, stored, now_ms, keys, letters.without_death(headers))
