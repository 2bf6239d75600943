"""Copying a partition into an archive: what changed since the backup before, up to the cut.

Room: broker. Reads a journal beside the worker that appends to it.
Holds: a position is in one stretch of the copy; what the backup before has of a stretch is named
again and not read; what is read was verified by the journal, by checksum and chain.
See: cut.py, which keeps what is read here; backup/manifest.py, what comes out.

A message that is live at a snapshot was live at each snapshot since it was stored where it is. So
of positions that the backup before had, nothing has to be read; of those behind it, entries if the
journal has them all, else rows that are live at the newest snapshot, and entries behind that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dejaqueue import limits
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import (
    ENTRIES,
    ROWS,
    PartitionCopy,
    Piece,
    SnapshotCopy,
    Stretch,
)
from dejaqueue.backup.pieces import PIECE_BYTES, PieceWriter
from dejaqueue.broker.shard import entries
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.snapshot import locators_of
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.encryption.cipher import Cipher, data_key_of, seal_object
from dejaqueue.journal.interface import TEXT_COLUMNS, Entry, EntryKind, Journal, Snapshot

READ_ROWS_MIN: Final = 64
READ_ROWS_MAX: Final = 16_384
"""Rows that are read at once: as many as make a piece, by the mean of those before."""
SPARSE_SHARE: Final = 4
"""A stretch of which less than one row in so many is live is copied anew, as rows."""
SMALL_BYTES: Final = 1 << 20
SMALL_COUNT: Final = 64
"""So many small pieces behind each other become one: else a manifest would name one more with each
backup, for as long as their messages live."""


class CopyTarget:
    """Where copies of a store's partitions go.

    Args:
        store: which store of journals they are of.
        cipher: encrypts pieces; None = they are stored as they are.
        replaces: what is there already is stored again, as it may be damaged.

    Attributes:
        new_bytes: of what was stored.
        data_keys: numbers of the keys that it was encrypted with.
    """

    def __init__(
        self, archive: Archive, store: str, cipher: Cipher | None, *, replaces: bool = False
    ) -> None:
        self._archive, self._store, self._cipher = archive, store, cipher
        self._replaces = replaces
        self.new_bytes = 0
        self.data_keys: set[int] = set()

    def put(self, content: bytes | memoryview, what: str) -> Piece:
        """Store a piece; `what` as `piece_name` has it."""
        stored = seal_object(self._cipher, content, f"{self._store}/{what}")
        if self._cipher is not None:
            self.data_keys.add(data_key_of(stored))
        piece = self._archive.put(stored, replaces=self._replaces)
        self.new_bytes += piece.byte_count
        return piece


def piece_name(topic: str, topic_number: int, partition: int, what: str) -> str:
    """What a piece is of: encrypted, it can be read under this name alone."""
    return f"{topic}@{topic_number}/{partition}/{what}"


class PartitionReader:
    """Copies one partition.

    Args:
        before: what the backup before has of it; None = nothing.
        wants_entries: there is a backup before, whatever it has of this partition: what was done
            since is copied entry by entry, if that can be.
    """

    def __init__(
        self,
        target: CopyTarget,
        journal: Journal,
        place: tuple[str, int, str, int],
        before: PartitionCopy | None,
        *,
        wants_entries: bool,
    ) -> None:
        self._target, self._journal, self._place, self._before = target, journal, place, before
        self._wants_entries = wants_entries

    def copy(self, position: int) -> PartitionCopy:
        """Copy it up to a position.

        Raises:
            JournalDamaged, Unavailable, ResourceExhausted.
        """
        snapshot, before = self._journal.latest_snapshot(), self._before
        saved = None if snapshot is None else self._copy_snapshot(snapshot)
        covered = 0 if snapshot is None else snapshot.position
        copied = 0 if before is None else before.position
        stretches = [] if before is None else list(before.stretches)
        if snapshot is not None:
            live = locators_of(snapshot.meta, self._journal.read_snapshot_file)
            stretches = [new for one in stretches for new in self._kept(one, covered, live)]
            stretches = list(self._merged(stretches, covered, live))
            if covered > copied:
                whole = self._entries_there(copied, covered) if self._wants_entries else []
                stretches += whole or self._copy_rows(copied, covered, live)
        stretches += self._copy_entries(max(copied, covered), position)
        topic, number, journals, partition = self._place
        return PartitionCopy(
            topic, number, journals, partition, position, saved, tuple(_joined(stretches))
        )

    def _entries_there(self, after: int, last: int) -> list[Stretch]:
        """Entries that a snapshot covers, if the journal has all of them yet; none otherwise. With
        them, any instant between two backups can be restored."""
        try:
            return list(self._copy_entries(after, last))
        except JournalDamaged:  # they were given back; what is needed is read by itself
            return []

    def _put(self, content: bytes | memoryview, what: str) -> Piece:
        topic, number, _, partition = self._place
        return self._target.put(content, piece_name(topic, number, partition, what))

    def _copy_snapshot(self, snapshot: Snapshot) -> SnapshotCopy:
        known: dict[str, Piece] = {}
        if self._before is not None and self._before.snapshot is not None:
            known = self._before.snapshot.files
        files = {
            name: known.get(name) or self._put(self._journal.read_snapshot_file(name), name)
            for name in snapshot.files
        }
        return SnapshotCopy(snapshot.position, snapshot.meta, files)

    def _kept(self, stretch: Stretch, covered: int, live: Int64s) -> Iterator[Stretch]:
        """A stretch of the backup before, as it is needed now."""
        if stretch.piece is None or stretch.last > covered:
            yield stretch
            return
        rows = len(_within(live, stretch.after, stretch.last))
        if not rows:
            yield stretch._replace(kind=ROWS, rows=0, until_ms=0, piece=None)
        elif SPARSE_SHARE * rows < stretch.rows:
            yield from self._copy_rows(stretch.after, stretch.last, live)
        else:
            yield stretch

    def _merged(self, stretches: list[Stretch], covered: int, live: Int64s) -> Iterator[Stretch]:
        """Many small stretches behind each other are copied anew as one, of rows. The backup before
        has their entries, for instants before it."""
        run: list[Stretch] = []
        for one in [*stretches, None]:
            if one is not None and one.last <= covered and _is_small(one):
                run.append(one)
                continue
            if sum(small.piece is not None for small in run) >= SMALL_COUNT:
                yield from self._copy_rows(run[0].after, run[-1].last, live)
            else:
                yield from run
            run = []
            if one is not None:
                yield one

    def _copy_rows(self, after: int, last: int, live: Int64s) -> Iterator[Stretch]:
        """Rows of messages that are live, of a range of positions."""
        wanted = _within(live, after, last)
        positions = wanted >> limits.ROW_BITS
        start, count, rows, writer = 0, READ_ROWS_MIN, 0, PieceWriter()
        while start < len(wanted):
            # Whole entries, since a position is in one stretch.
            end = min(start + count, len(wanted))
            end = int(positions.searchsorted(positions[end - 1], side="right"))
            stored = self._rows_entry(wanted[start:end])
            if stored is not None:
                writer.add(writer.last + 1, 0, stored)
                rows += stored.rows
                mean = max(1, stored.byte_count() // stored.rows)
                count = min(max(PIECE_BYTES // mean, READ_ROWS_MIN), READ_ROWS_MAX)
            start = end
            if writer.is_full:
                until = int(positions[end - 1])
                yield self._stretch(ROWS, after, until, rows, writer)
                after, rows, writer = until, 0, PieceWriter()
        if writer.last or after < last:
            yield self._stretch(ROWS, after, last, rows, writer)

    def _rows_entry(self, locators: Int64s) -> Entry | None:
        """What is stored of these rows; those that are done since the snapshot are left out."""
        batch = self._journal.read(locators, TEXT_COLUMNS)
        payloads = batch.column(TEXT_COLUMNS.index("payload"))
        if payloads.null_count:
            there = payloads.is_valid()
            batch = batch.filter(there)
            locators = locators[there.to_numpy(zero_copy_only=False)]
        if not len(locators):
            return None
        texts = {}
        for name, column in zip(TEXT_COLUMNS, batch.columns, strict=True):
            if column.null_count < len(column):
                filled = column.fill_null("") if column.null_count else column
                texts[name] = entries.text_column(filled)
        return Entry(EntryKind.RELOCATE, 0, rows=len(locators), ints=(locators,), texts=texts)

    def _copy_entries(self, after: int, position: int) -> Iterator[Stretch]:
        """Entries behind the snapshot, whole."""
        start, rows, writer = after, 0, PieceWriter()
        if position > after:
            for at, epoch, entry in self._journal.scan(after):
                if at > position:
                    break
                writer.add(at, epoch, entry)
                rows += entry.rows if entry.kind in _WITH_ROWS else 0
                if writer.is_full:
                    yield self._stretch(ENTRIES, start, at, rows, writer)
                    start, rows, writer = at, 0, PieceWriter()
        if writer.last:
            yield self._stretch(ENTRIES, start, writer.last, rows, writer)

    def _stretch(self, kind: str, after: int, last: int, rows: int, writer: PieceWriter) -> Stretch:
        piece = None
        if writer.last:
            piece = self._put(writer.content(), f"{kind}-{after}-{last}")
        return Stretch(kind, after, last, rows, writer.until_ms, piece)


_WITH_ROWS = (EntryKind.ENQUEUE, EntryKind.RELOCATE)


def _is_small(stretch: Stretch) -> bool:
    return stretch.piece is None or stretch.piece.byte_count < SMALL_BYTES


def _within(live: Int64s, after: int, last: int) -> Int64s:
    """Locators of positions behind `after`, to `last`."""
    first, end = live.searchsorted([(after + 1) << limits.ROW_BITS, (last + 1) << limits.ROW_BITS])
    return live[first:end]


def _joined(stretches: list[Stretch]) -> Iterator[Stretch]:
    """Neighbours of which nothing is needed become one."""
    empty: Stretch | None = None
    for one in stretches:
        if one.piece is not None:
            if empty is not None:
                yield empty
            empty = None
            yield one
        else:
            empty = one if empty is None else empty._replace(last=one.last)
    if empty is not None:
        yield empty
