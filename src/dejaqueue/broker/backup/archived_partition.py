"""A partition as it was, from what an archive has of it; and into another journal.

Room: broker. Nobody has the journal open that is written.
Holds: state is what the snapshot and the entries behind it make, as at any start; every live
message has its stored row, or the partition is refused; leases are void, as nobody can ack what a
site that is gone gave out.
See: restoring.py, for all of a backup; copying.py, what is in the archive; docs/guides/backup.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import ENTRIES, PartitionCopy, Piece, Stretch
from dejaqueue.backup.pieces import PIECE_BYTES, read_entries
from dejaqueue.broker.backup.copying import piece_name
from dejaqueue.broker.shard import entries
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import InView, Nack, OpenEpoch, Relocate
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.view_snapshots import (
    abandon_views_snapshot,
    plan_views_snapshot,
    restore_views,
)
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.interface import TEXT_COLUMNS, Entry, Journal, SnapshotFile, TextColumn
from dejaqueue.model import MessageState

REASON: Final = "restored"
"""Of what was leased when the backup was taken."""
POSITION_MAX: Final = (1 << (63 - limits.ROW_BITS)) - 2
"""Of which locators can be made."""
Positioned = tuple[int, int, Entry]
"""An entry behind its position and its epoch."""
ROWS_AT_ONCE: Final = 65_536
"""Rows that are written in one entry, about."""


class ArchivedPartition:
    """What an archive has of one partition.

    Args:
        store: of which store of journals the backup is.
        cipher: opens what is encrypted; None = nothing can be.
        later: the entries that the archive has behind the backup, in order, perhaps beginning
            earlier; None = it has none.
    """

    def __init__(
        self,
        archive: Archive,
        store: str,
        copy: PartitionCopy,
        cipher: Cipher | None,
        later: Callable[[], Iterator[Positioned]] | None = None,
    ) -> None:
        self._archive, self._store, self._cipher = archive, store, cipher
        self._later = later
        self.copy = copy

    def _content(self, piece: Piece, what: str) -> memoryview:
        copy = self.copy
        name = piece_name(copy.topic, copy.topic_number, copy.partition, what)
        return self._archive.get(piece, f"{self._store}/{name}", self._cipher)

    def _later_entries(self) -> Iterator[Positioned]:
        """Those behind the backup. Raises JournalDamaged: one is missing."""
        position = self.copy.position
        for found in self._later() if self._later is not None else ():
            if found[0] <= position:
                continue
            position += 1
            if found[0] != position:
                raise JournalDamaged(f"{self.copy.place}: entry {position} is not in the archive")
            yield found

    def _entries(self, stretch: Stretch) -> Iterator[Positioned]:
        if stretch.piece is None:
            return
        what = f"{stretch.kind}-{stretch.after}-{stretch.last}"
        content = self._content(stretch.piece, what)
        yield from read_entries(content, f"{self.copy.place}, {stretch.piece.name}")

    def views(self, until_ms: int | None = None) -> PartitionViews:
        """The state as it was at the cut.

        Args:
            until_ms: at this instant instead, UTC milliseconds: behind the last entry that is of no
                later one.

        Raises:
            JournalDamaged: something is missing, or is not what was stored. EncryptionKeyMissing.
        """
        copy = self.copy
        views, position = PartitionViews(Engine(copy.partition)), 0
        if copy.snapshot is not None:
            files = copy.snapshot.files
            views = restore_views(copy.snapshot.meta, lambda name: self._content(files[name], name))
            position = copy.snapshot.position
        for stretch in copy.stretches:
            if stretch.last <= position:
                continue
            if stretch.kind != ENTRIES or stretch.after > position:
                raise JournalDamaged(f"{copy.place}: no entries behind {position} in the backup")
            for at, _, entry in self._entries(stretch):
                if at <= position:
                    continue
                if at != position + 1:
                    raise JournalDamaged(f"{copy.place}: entry {position + 1} is missing")
                if until_ms is not None and entry.now_ms > until_ms:
                    return views
                views.apply(entries.to_command(entry, at))
                position = at
        if position != copy.position:
            raise JournalDamaged(f"{copy.place}: ends at {position}, not at {copy.position}")
        for at, _, entry in self._later_entries():
            if until_ms is not None and entry.now_ms > until_ms:
                return views
            views.apply(entries.to_command(entry, at))
        return views

    def rows(self, views: PartitionViews) -> Iterator[tuple[Int64s, dict[str, TextColumn]]]:
        """What is stored of all live messages: sequences and their columns, each message once.

        Raises:
            JournalDamaged: of a message nothing is there; others as `views`.
        """
        pieces = list(views.live_sequences())
        sequences = np.concatenate([np.zeros(0, dtype=np.int64), *pieces])
        locators = views.locators(sequences) if len(sequences) else sequences
        order = np.argsort(locators, kind="stable")
        sequences, locators = sequences[order], locators[order]
        given = 0
        for kind, after, last, found in self._stretches():
            first, end = locators.searchsorted(
                [(after + 1) << limits.ROW_BITS, (last + 1) << limits.ROW_BITS]
            )
            if first == end:
                continue
            gathered = _Rows()
            for at, _, entry in found():
                here = _locators_of(entry, at, kind)
                if not len(here):
                    continue
                start, stop = locators.searchsorted([here[0], here[-1] + 1])
                wanted = locators[start:stop]
                places = here.searchsorted(wanted)
                if (here[places] != wanted).any():
                    raise JournalDamaged(f"{self.copy.place}: a row of entry {at} is missing")
                given += len(wanted)
                gathered.add(sequences[start:stop], entry, places)
                if gathered.is_full:
                    yield gathered.taken()
                    gathered = _Rows()
            if gathered.count:
                yield gathered.taken()
        if given != len(sequences):
            raise JournalDamaged(
                f"{self.copy.place}: {len(sequences) - given} messages have no stored row"
            )

    def _stretches(self) -> Iterator[tuple[str, int, int, Callable[[], Iterator[Positioned]]]]:
        """All there is: its kind, from behind which position to which, and how to read it."""
        for one in self.copy.stretches:
            yield one.kind, one.after, one.last, partial(self._entries, one)
        yield ENTRIES, self.copy.position, POSITION_MAX, self._later_entries


class _Rows:
    """Rows of several entries, to become one: an append for each would be a sync for each."""

    def __init__(self) -> None:
        self._sequences: list[Int64s] = []
        self._columns: dict[str, list[pa.Array]] = {name: [] for name in TEXT_COLUMNS}
        self.count = 0
        self._byte_count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= ROWS_AT_ONCE or self._byte_count >= PIECE_BYTES

    def add(self, sequences: Int64s, entry: Entry, places: Int64s) -> None:
        if not len(places):
            return
        self._sequences.append(sequences)
        self.count += len(places)
        for name, columns in self._columns.items():
            text = entry.texts.get(name)
            if text is None:
                columns.append(pa.array([b""], pa.binary()).take(pa.array(np.zeros_like(places))))
                continue
            column = entries.arrow_column(text, pa.binary())
            if len(places) != entry.rows:
                column = column.take(pa.array(places))
            columns.append(column)
            self._byte_count += column.nbytes

    def taken(self) -> tuple[Int64s, dict[str, TextColumn]]:
        joined = {name: pa.concat_arrays(parts) for name, parts in self._columns.items()}
        texts = {name: entries.text_column(column) for name, column in joined.items()}
        kept = {name: text for name, text in texts.items() if len(text.data) or name == "payload"}
        return np.concatenate(self._sequences), kept


def _locators_of(entry: Entry, position: int, kind: str) -> Int64s:
    """Locators of the rows of an entry, ascending."""
    if kind != ENTRIES:
        return entry.ints[0]
    if not entry.texts:
        return np.zeros(0, dtype=np.int64)
    first = position << limits.ROW_BITS
    return np.arange(first, first + entry.rows, dtype=np.int64)


def void_leases(views: PartitionViews) -> int:
    """Have everything that is leased come back now; how much that was.

    Nothing dies of it: that a site was lost is no fault of a message.
    """
    count = 0
    for number in (0, *views.named):
        engine = views.named[number].engine if number else views.unnamed
        count += _void_in(views, number, engine)
    return count


def _void_in(views: PartitionViews, number: int, engine: Engine) -> int:
    """As `void_leases`, of one view; 0 = the unnamed one."""
    leased = [
        sequences[engine.states(sequences) == MessageState.LEASED]
        for sequences in engine.live_sequences()
    ]
    sequences = np.concatenate([np.zeros(0, dtype=np.int64), *leased])
    if len(sequences):
        now_ms, attempts = views.now_ms, engine.attempts(sequences)
        nack = Nack(
            now_ms,
            now_ms,
            sequences=sequences,
            attempts=attempts,
            reason=REASON,
            release=True,
        )
        views.apply(InView(now_ms, number, nack))
    return len(sequences)


def write(journal: Journal, archived: ArchivedPartition, views: PartitionViews) -> int:
    """Write a partition into a journal that has nothing in it; how many messages it has.

    Its rows come first, then a snapshot that covers them: nothing is replayed at the first start.

    Args:
        views: its state, at the cut; leases may be void already. Changed.

    Raises:
        JournalDamaged: see ArchivedPartition. ResourceExhausted, Unavailable.
    """
    begin = OpenEpoch(views.now_ms, views.unnamed.epoch + 1)
    tail = journal.append([entries.to_entry(begin)], 0, begin.epoch)
    views.apply(begin)
    count = 0
    for sequences, texts in archived.rows(views):
        command = Relocate(views.now_ms, tail + 1, sequences)
        tail = journal.append([entries.relocate_entry(command, texts)], tail, begin.epoch)
        views.apply(command)
        count += len(sequences)
    abandon_views_snapshot(views)  # the new journal has none of the files
    meta, planned = plan_views_snapshot(views)
    journal.put_snapshot(tail, meta, [SnapshotFile(name, content) for name, content in planned])
    return count
