"""Records read and checked: nothing missing, nothing altered, nothing taken for what it is not.

An append is one record or several, of one append id. A set that another record follows before it
is whole is **void**: whoever appended that record saw the set end there (its `previous` says so),
and had made sure that the rest will never come. A set at the very end that is not whole was never
acknowledged. Neither is damage, and damage is neither: a record that is not there, or not what was
written, is asked from other replicas where the server has some, and refused otherwise.

Room: journal.
Holds: a gap or an altered record is never skipped; JournalDamaged names partition and record.
See: record.py; writer.py, which leaves void sets; duties 4 and 7 of interface.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.records.append_index import ReadCursor
from dejaqueue.journal.records.interface import RecordLog
from dejaqueue.journal.records.record import Record, RecordKind, open_record
from dejaqueue.journal.segments.segment import READABLE

log = logging.getLogger(__name__)


class EntryFacts(NamedTuple):
    """An entry as it lies in the bytes of its append."""

    kind: int
    rows: int
    byte_count: int
    checksum: int


class WholeAppend(NamedTuple):
    """An append of which every record is there.

    Attributes:
        number: of its first record.
        parts: its records.
        chain_before: checksum of the record before it.
        position: of its first entry.
        body: the bytes of its entries.
        entries: facts of each.
        after: where reading goes on.
    """

    number: int
    parts: int
    chain_before: int
    position: int
    body: memoryview
    entries: list[EntryFacts]
    after: ReadCursor

    @property
    def rows(self) -> int:
        """Rows that locators may name."""
        return sum(one.rows for one in self.entries if one.kind in READABLE)

    @property
    def readable_bytes(self) -> int:
        """Bytes of the entries with such rows."""
        return sum(one.byte_count for one in self.entries if one.kind in READABLE)


class CheckedRecords:
    """The records of one log, as they were written, wherever a whole copy of them is.

    Args:
        place: topic/partition, for errors.
    """

    def __init__(self, records: RecordLog, place: str) -> None:
        self._records = records
        self.place = place
        self.identity = 0
        """Of the log; 0 until its first record was seen or written."""
        self.repaired: dict[int, str] = {}
        """Records that another replica gave, by number: the newest few."""

    def read(self, first: int, end: int) -> Iterator[Record]:
        """Yield the records from `first` to before `end`, every one.

        Raises:
            JournalDamaged, Unavailable.
        """
        expected = first
        for number, content in self._records.read(first, end):
            while expected < number < end:
                yield self._from_another(expected, "is missing")
                expected += 1
            if number != expected:
                raise JournalDamaged(f"{self.place}, record {number}: given out of order")
            record = self._checked(content, number)
            yield record or self._from_another(number, "is not what was written")
            expected = number + 1
        while expected < end:
            yield self._from_another(expected, "is missing")
            expected += 1

    def _checked(self, content: bytes, number: int) -> Record | None:
        record = open_record(content, number)
        if record is None:
            return None
        if self.identity and record.head.identity != self.identity:
            return None
        self.identity = record.head.identity
        return record

    def _from_another(self, number: int, wrong: str) -> Record:
        for replica in self._records.replicas():
            for found, content in self._records.read_from(replica, number, number + 1):
                record = self._checked(content, number) if found == number else None
                if record is not None:
                    log.error("%s, record %d %s; %s has it", self.place, number, wrong, replica)
                    self.repaired[number] = replica
                    return record
        raise JournalDamaged(f"{self.place}, record {number}: {wrong}")

    def appends(
        self, stand: ReadCursor, last: int, *, is_owner: bool = True
    ) -> Iterator[WholeAppend | ReadCursor]:
        """Yield the appends from `stand` to the record `last`.

        Yields a ReadCursor where records without entries of their own end: barriers and void sets.

        Args:
            is_owner: a set at the very end that is not whole is taken for void, as the caller
                appends behind it; False = its rest may be on its way, and it is left.

        Raises:
            JournalDamaged, Unavailable.
        """
        parts: list[Record] = []
        for record in self.read(stand.number, last + 1):
            head = record.head
            chain = parts[-1].checksum if parts else stand.chain
            if head.previous != chain:
                raise JournalDamaged(
                    f"{self.place}, record {head.number}: does not follow the one before it"
                )
            if parts and not _continues(parts, record):
                stand = stand._replace(number=head.number, chain=chain)
                parts = []
                yield stand
            if head.position != stand.position or head.part != len(parts):
                raise JournalDamaged(
                    f"{self.place}, record {head.number}: of entry {head.position}, part "
                    f"{head.part}, where entry {stand.position} begins"
                )
            if head.kind == RecordKind.BARRIER:
                stand = stand._replace(number=head.number + 1, chain=record.checksum)
                yield stand
                continue
            parts.append(record)
            if len(parts) == head.parts:
                whole = self._joined(parts, stand)
                parts, stand = [], whole.after
                yield whole
        if parts and is_owner:  # never acknowledged
            yield stand._replace(number=last + 1, chain=parts[-1].checksum)

    def _joined(self, parts: list[Record], stand: ReadCursor) -> WholeAppend:
        head, last = parts[0].head, parts[-1]
        body = parts[0].body if len(parts) == 1 else memoryview(b"".join(p.body for p in parts))
        entries = entries_of(body, stand.position, stand.entry_chain)
        if entries is None or len(entries) != head.entries or len(body) != head.byte_count:
            raise JournalDamaged(
                f"{self.place}, record {head.number}: its entries are not what was written"
            )
        after = ReadCursor(
            last.head.number + 1,
            last.checksum,
            stand.position + len(entries),
            entries[-1].checksum if entries else stand.entry_chain,
        )
        # fmt: off
        return WholeAppend(
            head.number, len(parts), head.previous, stand.position, body, entries, after
        )
        # fmt: on


def _continues(parts: list[Record], record: Record) -> bool:
    head = record.head
    return head.append_id == parts[0].head.append_id and head.part == len(parts)


def entries_of(body: memoryview, position: int, chain: int) -> list[EntryFacts] | None:
    """The entries of an append, each verified; None if they are not what was written."""
    entries: list[EntryFacts] = []
    at = 0
    while at < len(body):
        head = entry_format.peek(body, at)
        if head is None or head.position != position + len(entries) or head.previous != chain:
            return None
        checksum = entry_format.verify(body, at, head)
        if checksum is None:
            return None
        byte_count = entry_format.HEADER_BYTES + head.body_bytes
        entries.append(EntryFacts(head.kind, head.rows, byte_count, checksum))
        chain, at = checksum, at + byte_count
    return entries
