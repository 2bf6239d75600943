"""The journal of one partition: its part of the log that it shares with others of its shard.

Positions and locators are the partition's own: dense from 1, whatever its neighbours do. The log's
are found by runs (runs.py), without work in Python per row.

Room: journal. One writer; `read`, `put_snapshot` and `byte_count` from any thread.
Holds: what a partition does is of no consequence for its neighbours, but for a sync that fails.
See: interface.py beside (the duties), log.py, gather.py, snapshots.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import InternalError, JournalDamaged, ResourceExhausted, Unavailable
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.format import Decoded
from dejaqueue.journal.interface import (
    TEXT_COLUMNS,
    Append,
    Entry,
    Erasure,
    Int64s,
    Journal,
    Snapshot,
    SnapshotFile,
)
from dejaqueue.journal.segments.files import FULL
from dejaqueue.journal.segments.gather import gather
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.journal.segments.segment import Segment
from dejaqueue.journal.segments.snapshots import SnapshotFiles

SPARSE_ROWS_MAX: Final = 100_000
"""Live rows that one answer of `sparse` names, about: they are read and appended in one go."""


class SegmentJournal(Journal):
    """The journal of one partition. Made by a store.

    Args:
        directory: of its snapshots.
        number: of the partition in the log.
        snapshots_cipher: encrypts parts of snapshots; None = they are stored as they are.
    """

    log: ShardLog

    def __init__(
        self,
        log: ShardLog,
        directory: Path,
        number: int,
        on_close: Callable[[], None] = lambda: None,
        snapshots_cipher: Cipher | None = None,
    ) -> None:
        self.log, self.number = log, number
        self._directory, self._on_close = directory, on_close
        self._failure: str | None = None
        self._pressed_until = 0
        self._snapshot_files = SnapshotFiles(log.files, directory, snapshots_cipher, f"{number}")
        self._part = log.part(number)
        self._check_reach()
        self._part.adopted = False
        self._bytes_before = self._part.appended_bytes
        self._part.tail = max(self._part.tail, self._snapshot_files.position)
        self._truncated = self._snapshot_files.kept_position
        log.room.replayed(self._part, self._truncated)
        self.cut_bytes, log.cut_bytes = log.cut_bytes, 0  # told once
        self._notes, log.notes = log.notes, []

    def __str__(self) -> str:
        """For messages: where its snapshots are."""
        return str(self._directory)

    def _check_reach(self) -> None:
        """What its snapshot does not have is in the log.

        Raises:
            JournalDamaged: some of it is lost.
        """
        snapshots, part = self._snapshot_files, self._part
        if snapshots.log_position > self.log.tail:
            raise JournalDamaged(
                f"{self.log.directory}: the journal ends at {self.log.tail}, "
                f"its snapshot in {self._directory} is of {snapshots.log_position}"
            )
        first = snapshots.position + 1
        if part.tail >= first and not part.runs.has_all(first):
            raise JournalDamaged(f"{self._directory}: entry {first} was given back, no snapshot")
        if snapshots.is_lost and not part.tail:
            raise JournalDamaged(f"{self._directory}: is empty, though there were snapshots in it")

    # --- writing -------------------------------------------------------------------------------

    @property
    def repairs(self) -> list[str]:
        """See Journal.repairs; of the log, whoever opens it first is told."""
        return [*self._snapshot_files.damaged, *self._notes]

    @property
    def tail(self) -> int:
        """Position of the last entry, 0 if there is none."""
        return self._part.tail

    def append(self, entries: Sequence[Entry], after: int, epoch: int) -> int:
        """See Journal.append."""
        self._check_usable()
        append = Append(self, entries, after, epoch)
        self.log.append_all([append])
        if append.error is not None:
            raise append.error
        return append.tail

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise Unavailable(self._failure)
        self.log.check_usable()

    @property
    def is_proved(self) -> bool:
        """See Journal.is_proved."""
        return self.log.is_proved(self._part)

    def prove(self) -> None:
        """See Journal.prove."""
        self.log.prove()

    # --- reading -------------------------------------------------------------------------------

    def scan(self, after: int) -> Iterator[tuple[int, int, Entry]]:
        """See Journal.scan."""
        self._check_usable()
        for position, found in self._entries(after, self.tail):
            if found is None:
                raise JournalDamaged(f"{self._directory}: entry {position} was given back")
            yield position, found.head.epoch, found.entry

    def _entries(self, after: int, end: int) -> Iterator[tuple[int, Decoded | None]]:
        """Each entry behind `after`, up to `end`; None for what was given back.

        Raises:
            JournalDamaged: it is not what was written. OSError.
        """
        log = self.log
        segments = log.listed.segments
        firsts = [segment.first for segment in segments]
        for start, at_position, count in self._part.runs.since(after + 1):
            for position in range(start, min(start + count, end + 1)):
                log_position = at_position + position - start
                listed = bisect_right(firsts, log_position) - 1
                if not at_position or listed < 0 or log_position > segments[listed].last:
                    yield position, None
                    continue
                yield position, self._decoded(segments[listed], log_position, position)

    def _decoded(self, segment: Segment, log_position: int, position: int) -> Decoded:
        log = self.log
        memory = segment.load(log.files)
        place = log_position - segment.first
        at = int(segment.offsets()[place]) << 3
        try:
            trusted = segment.is_verified(place)
            found = entry_format.decode(memory.view, at, trusted=trusted, cipher=log.cipher)
        except JournalDamaged as damage:
            raise JournalDamaged(f"{segment.path}, offset {at}: {damage}") from damage
        owner = entry_format.owner_of(memory.view, at)
        if (found.head.position, *owner) != (log_position, self.number, position):
            raise JournalDamaged(f"{segment.path}, offset {at}: not entry {log_position}")
        return found

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        self._check_usable()
        asked = np.asarray(locators, dtype=np.int64)
        found = self._part.runs.locate(asked, self._part.tail)
        # The list comes second: it has the segment of whatever was located.
        return gather(self.log.files, self.log.listed, found, columns)

    # --- giving room back ----------------------------------------------------------------------

    def adopt(self, live_locators: Iterator[Int64s]) -> None:
        """See Journal.adopt."""
        self._check_usable()
        self.log.room.adopt(self._part, live_locators)

    def free(self, locators: Int64s) -> None:
        """See Journal.free."""
        self._check_usable()
        if len(locators) and self._part.adopted:
            self.log.room.free(self._part, np.asarray(locators, dtype=np.int64))

    def truncate(self, position: int) -> None:
        """See Journal.truncate. What the older kept snapshot still needs stays until it goes."""
        self._check_usable()
        self._truncated = max(self._truncated, position)
        self.log.room.replayed(self._part, min(self._truncated, self._snapshot_files.kept_position))

    @property
    def holds_room(self) -> bool:
        """See Journal.holds_room."""
        return self._part.adopted and self.log.holds_room(self._part)

    @property
    def is_asked(self) -> bool:
        """See Journal.is_asked."""
        return self._part.is_asked or self.has_rows_pressed

    def turn_over(self) -> None:
        """See Journal.turn_over."""
        self.log.turn_over()

    def sparse(self) -> Int64s | None:
        """See Journal.sparse; of its own rows in segments that are mostly dead."""
        self._check_usable()
        self._part.is_asked = False
        if not self._part.adopted:
            return None
        rows = 0
        runs: list[tuple[int, int]] = []
        for first, _ in self.log.room.sparse():
            share = self._part.shares.get(first)
            if share is None or share.rows <= 0:
                continue
            if runs and rows + share.rows > SPARSE_ROWS_MAX:
                break
            rows += share.rows
            runs.append((share.first, share.last))
        return np.array(runs, dtype=np.int64) if runs else None

    def shed(self, positions: Int64s, byte_counts: Int64s) -> None:
        """See Journal.shed."""
        self._check_usable()
        asked = np.asarray(positions, dtype=np.int64) << limits.ROW_BITS
        found = self._part.runs.locate(asked, self._part.tail) >> limits.ROW_BITS
        self.log.room.shed(found, byte_counts)

    # --- erasing -------------------------------------------------------------------------------

    def stored(self, after: int, end: int) -> Iterator[tuple[int, Entry]]:
        """See Journal.stored."""
        self._check_usable()
        try:
            for position, found in self._entries(after, min(end, self.tail)):
                if found is not None:
                    yield position, found.entry
        except FileNotFoundError:  # a segment went since the list was read
            where = self.place or self._directory
            raise Unavailable(f"{where}: entries are being given back", 100) from None

    def plan_erasure(self, positions: Int64s, until: int) -> Erasure:
        """See Journal.plan_erasure; the units are segments, by their first positions in the log."""
        self._check_usable()
        asked = np.asarray(positions, dtype=np.int64) << limits.ROW_BITS
        found = self._part.runs.locate(asked, self._part.tail) >> limits.ROW_BITS
        segments = self.log.room.segments_with(found)
        units = tuple(segment.first for segment in segments)
        return Erasure(units, until, sum(segment.used for segment in segments))

    def press(self, erasure: Erasure) -> bool:
        """See Journal.press."""
        self._check_usable()
        self._pressed_until = max(self._pressed_until, erasure.until)
        is_gone = self.log.press(erasure.units, self._part)
        return is_gone and self._snapshot_files.kept_position >= erasure.until

    @property
    def is_pressed(self) -> bool:
        """See Journal.is_pressed."""
        # Where nobody waits, entries may be kept for a backup: more snapshots would not help.
        kept = self._snapshot_files.kept_position
        return self.is_urgent or self.log.room.replays_pressed(self._part, kept=kept)

    @property
    def is_urgent(self) -> bool:
        """See Journal.is_urgent."""
        if self._pressed_until > self._snapshot_files.kept_position:
            return True
        return self.log.room.replays_pressed(self._part, urgent=True)

    @property
    def has_rows_pressed(self) -> bool:
        """See Journal.has_rows_pressed."""
        return self._part.adopted and self.log.room.has_rows_pressed(self._part)

    # --- room, snapshots, end ------------------------------------------------------------------

    def has_room(self, byte_count: int) -> bool:
        """See Journal.has_room; the reserve is left to acks and leases."""
        self._check_usable()
        return self.log.has_room(byte_count)

    def byte_count(self) -> int:
        """See Journal.byte_count: of its own entries."""
        with self.log.guard:
            return self._part.byte_count

    def put_snapshot(self, position: int, meta: str, files: Sequence[SnapshotFile]) -> None:
        """See Journal.put_snapshot."""
        self._check_usable()
        if position > self.tail:
            raise InternalError(f"a snapshot of {position} behind the tail {self.tail}")
        self._put(position, meta, files, self._part.runs.position_of(position))

    def begin_behind(self, position: int, meta: str, files: Sequence[SnapshotFile]) -> None:
        """Have a journal that has nothing but rows go on behind a position of another journal,
        whose state the snapshot is; its entries can be appended here then.

        Raises:
            InternalError: it has more entries already. ResourceExhausted, Unavailable.
        """
        self._check_usable()
        if position < self.tail:
            raise InternalError(f"{self}: cannot begin behind {position}, it has {self.tail}")
        self._put(position, meta, files, self._part.runs.position_of(self.tail))
        self._part.tail = position

    def _put(
        self, position: int, meta: str, files: Sequence[SnapshotFile], log_position: int
    ) -> None:
        try:
            self._snapshot_files.put(position, meta, files, log_position)
        except OSError as failure:
            if failure.errno in FULL:
                raise ResourceExhausted(f"no room for a snapshot in {self._directory}") from failure
            raise Unavailable(f"a snapshot in {self._directory} failed: {failure}") from failure

    def latest_snapshot(self) -> Snapshot | None:
        """See Journal.latest_snapshot."""
        self._check_usable()
        return self._snapshot_files.latest()

    def read_snapshot_file(self, name: str) -> memoryview:
        """See Journal.read_snapshot_file."""
        self._check_usable()
        return self._snapshot_files.read(name)

    @property
    def appended_bytes(self) -> int:  # type: ignore[override]
        """See Journal.appended_bytes."""
        return self._part.appended_bytes - self._bytes_before

    def close(self) -> None:
        """See Journal.close."""
        if self._failure is None:
            self._failure = f"the journal {self._directory} is closed"
            self._on_close()
