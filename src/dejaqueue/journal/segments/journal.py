"""The journal of one partition in segment files: append, scan, read, free, give room back.

An append is one `pwritev` and one `fdatasync` into a file that was allocated before (spare.py).

Room: journal. One writer; `read`, `put_snapshot` and `byte_count` from any thread.
Holds: an append lies in one segment; what is published is durable; after the first failed sync
nothing is written any more.
See: interface.py beside (the duties), recovery.py, gather.py, snapshots.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa
import xxhash

from dejaqueue import limits
from dejaqueue.errors import (
    Fenced,
    InternalError,
    JournalDamaged,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.format import Encoded, Piece
from dejaqueue.journal.interface import (
    TEXT_COLUMNS,
    Entry,
    Int64s,
    Journal,
    Snapshot,
    SnapshotFile,
)
from dejaqueue.journal.segments.files import FULL, FileSystem, OpenFile
from dejaqueue.journal.segments.gather import gather
from dejaqueue.journal.segments.proof import AppendEnd, TailMark, write_mark
from dejaqueue.journal.segments.recovery import recover, segment_name
from dejaqueue.journal.segments.segment import (
    HEAD_BYTES,
    READABLE,
    TAIL_BYTES,
    Segment,
    SegmentHead,
    SegmentList,
    index_bytes,
)
from dejaqueue.journal.segments.snapshots import SnapshotFiles
from dejaqueue.journal.segments.spare import SPARE_SUFFIX, Spare, allocate_file

SEGMENT_BYTES: Final = 64 << 20
"""Size of a full-grown segment."""
SEGMENT_BYTES_FIRST: Final = 1 << 20
"""Size of a partition's first segment; each next is twice as large, so that many small partitions
take little room."""
SPARSE_PERCENT: Final = 25
"""A segment with less than this alive is worth copying forward."""
SPARSE_ROWS_MAX: Final = 100_000
"""Live rows that one answer of `sparse` names, about: they are read and appended in one go."""
_PAGE: Final = 4096
_ZEROS_BYTES: Final = 1 << 20


def _begun_path(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.begun")


def _is_there(files: FileSystem, path: Path) -> bool:
    try:
        files.open(path).close()
    except FileNotFoundError:
        return False
    return True


class SegmentJournal(Journal):
    """The journal of one partition. Made by a store; see there for the settings."""

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        *,
        topic: str,
        partition: int,
        segment_bytes: int,
        reserve_bytes: int,
        background: Executor | None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._files, self._directory = files, directory
        self._topic, self._partition = xxhash.xxh3_64_intdigest(topic.encode()), partition
        self._segment_bytes, self._reserve_bytes = segment_bytes, reserve_bytes
        self._background, self._on_close = background, on_close
        self._chores: list[Future[None]] = []
        self._failure: str | None = None
        self._spare: Spare | None = None
        files.make_directory(directory)
        for name in files.names(directory):
            if name.endswith(SPARE_SUFFIX):
                files.unlink(directory / name)
        self._shelf = SnapshotFiles(files, directory / "snapshots")
        self._has_begun = _is_there(files, _begun_path(directory))
        recovered = recover(files, directory, self._topic, partition, self._shelf.position)
        if self._has_begun and not recovered.segments:
            raise JournalDamaged(f"{directory}: is empty, though there were entries in it")
        self.cut_bytes = recovered.cut_bytes
        self._notes = recovered.notes
        self._marked = recovered.mark.position if recovered.mark is not None else 0
        self._marking = False
        self._turning = False
        self._listed = SegmentList(tuple(recovered.segments))
        self._live: Int64s = np.zeros(len(recovered.segments), dtype=np.int64)
        self._adopted = not recovered.segments
        self._truncated = 0
        last = recovered.segments[-1] if recovered.segments else None
        self._tail = last.last if last else 0
        self._chain = last.chain if last else 0
        if self._tail:
            with suppress(OSError):  # it is tried again at the next opening
                self._begin()

    # --- writing -------------------------------------------------------------------------------

    @property
    def repairs(self) -> list[str]:
        """See Journal.repairs."""
        return [*self._shelf.damaged, *self._notes]

    @property
    def tail(self) -> int:
        """Position of the last entry, 0 if there is none."""
        return self._tail

    def append(self, entries: Sequence[Entry], after: int, epoch: int) -> int:
        """See Journal.append."""
        self._check_usable()
        if after != self._tail:
            raise Fenced(f"the tail of {self._directory} is {self._tail}, not {after}")
        if not entries:
            raise InternalError("an append of no entries")
        pieces, encoded = self._encode(entries, epoch)
        byte_count = sum(one.byte_count for one in encoded)
        segment = self._segment_for(len(entries), byte_count)
        try:
            self._begin()
        except OSError as failure:
            if failure.errno not in FULL:
                self._fail(failure)
            raise ResourceExhausted(f"no room on the disk of {self._directory}") from failure
        self._write(segment, pieces)
        self._publish(segment, entries, encoded)
        self.appended_bytes += byte_count
        return self._tail

    def _encode(self, entries: Sequence[Entry], epoch: int) -> tuple[list[Piece], list[Encoded]]:
        chain, tail = self._chain, self._tail
        pieces: list[Piece] = []
        encoded: list[Encoded] = []
        for place, entry in enumerate(entries, 1):
            one = entry_format.encode(entry, tail + place, epoch, chain, tail)
            chain = one.checksum
            pieces += one.pieces
            encoded.append(one)
        byte_count = sum(one.byte_count for one in encoded)
        pieces.append(AppendEnd(tail, byte_count, self._chain).encode())
        return pieces, encoded

    def _segment_for(self, entries: int, byte_count: int) -> Segment:
        """The active segment if it has room, else a new one."""
        segments = self._listed.segments
        if segments and not self._turning and segments[-1].has_room(entries, byte_count):
            return segments[-1]
        return self._roll(entries, byte_count)

    def _begin(self) -> None:
        """Note beside the directory that there are segments in it: it may be lost as a whole."""
        if self._has_begun:
            return
        path = _begun_path(self._directory)
        self._files.open(path, create=True).close()
        self._files.sync_directory(path.parent)
        self._has_begun = True

    def _write(self, segment: Segment, pieces: list[Piece]) -> None:
        file, offset = segment.file, segment.used
        assert file is not None
        try:
            file.write(pieces, offset)
        except OSError as failure:
            if failure.errno not in FULL:
                self._fail(failure)
            self._undo(file, offset, sum(len(piece) for piece in pieces))
            raise ResourceExhausted(f"no room on the disk of {self._directory}") from failure
        try:
            file.sync()
        except OSError as failure:
            self._fail(failure)

    def _undo(self, file: OpenFile, offset: int, byte_count: int) -> None:
        """After a write that lacked room: none of its entries may be there.

        Not even one behind the first: if the first is appended again by itself, it chains.
        """
        try:
            try:
                for at in range(offset, offset + byte_count, _ZEROS_BYTES):
                    file.write([bytes(min(_ZEROS_BYTES, offset + byte_count - at))], at)
            except OSError as failure:
                if failure.errno not in FULL:
                    raise
                # Blocks that are not there hold no entry.
            file.sync()
        except OSError as failure:
            self._fail(failure)

    def _publish(self, segment: Segment, entries: Sequence[Entry], encoded: list[Encoded]) -> None:
        offset, readable_rows = segment.used, 0
        for entry, one in zip(entries, encoded, strict=True):
            segment.add(offset, entry.kind, entry.rows, one.byte_count, one.checksum)
            offset += one.byte_count
            if entry.kind in READABLE:
                readable_rows += entry.rows
        self._live[-1] += readable_rows
        self._listed.counts[-1] = segment.count  # from here on readers see them
        self._tail += len(entries)
        self._chain = encoded[-1].checksum
        if self._spare is None and 2 * segment.used > segment.byte_count:
            self._prepare_spare(self._next_bytes(segment))

    def _fail(self, failure: OSError) -> NoReturn:
        """The first failed sync or write is final (duty 8)."""
        self._failure = f"{self._directory} failed: {failure.strerror or failure}"
        self._release()
        raise Unavailable(f"{self._failure}; whether it was stored is unknown") from failure

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise Unavailable(self._failure)

    # --- the mark of the tail ------------------------------------------------------------------

    @property
    def is_proved(self) -> bool:
        """See Journal.is_proved."""
        return self._marking or self._marked >= self._tail or self._failure is not None

    def prove(self) -> None:
        """See Journal.prove."""
        if self.is_proved:
            return
        mark = self._mark()
        self._marking = True

        def work() -> None:
            try:
                write_mark(self._files, self._directory, mark)
                self._marked = mark.position
            finally:
                self._marking = False

        self._chore(work)

    def _mark(self) -> TailMark:
        return TailMark(self._partition, self._topic, self._tail, self._chain)

    # --- segments ------------------------------------------------------------------------------

    def _next_bytes(self, segment: Segment | None) -> int:
        grown = SEGMENT_BYTES_FIRST if segment is None else 2 * segment.byte_count
        return min(self._segment_bytes, max(grown, min(SEGMENT_BYTES_FIRST, self._segment_bytes)))

    def _roll(self, entries: int, byte_count: int) -> Segment:
        """Start a new segment durably; the one before is sealed behind it."""
        before = self._listed.segments[-1] if self._listed.segments else None
        needed = HEAD_BYTES + byte_count + index_bytes(entries) + TAIL_BYTES
        needed += -needed % _PAGE
        first = self._tail + 1
        path = self._directory / segment_name(first)
        if self._turning:
            self._drop_spare()
        usual = self._next_bytes(None if self._turning else before)
        file, file_bytes, draft = self._new_file(needed, usual)
        head = SegmentHead(self._partition, self._topic, first, self._chain)
        try:
            file.write([head.encode()], 0)
        except OSError as failure:
            file.close()
            if failure.errno in FULL:
                raise ResourceExhausted(f"no room on the disk of {self._directory}") from failure
            self._fail(failure)
        try:
            file.sync()
            self._files.rename(draft, path)
            self._files.sync_directory(self._directory)
        except OSError as failure:
            file.close()
            self._fail(failure)
        segment = Segment(path, first, self._chain, file_bytes)
        segment.attach(file)
        self._turning = False
        self._list((*self._listed.segments, segment), np.append(self._live, 0))
        if before is not None:
            self._chore(before.seal)
            self._give_back()
        return segment

    def _new_file(self, needed: int, usual: int) -> tuple[OpenFile, int, Path]:
        """An allocated file: the spare if there is one, else a new one, small if room is short."""
        spare, self._spare = self._spare, None
        draft = self._directory / f"next{SPARE_SUFFIX}"
        if spare is not None:
            file = spare.take()
            if file is not None and spare.byte_count >= needed:
                return file, spare.byte_count, draft
            if file is not None:
                file.close()
        file_bytes = max(usual, needed)
        while True:
            try:
                return allocate_file(self._files, draft, file_bytes), file_bytes, draft
            except OSError as failure:
                # Not kept in a variable: the cycle of error and frame would keep maps of deleted
                # segments, and so their room on the disk, until the collector comes by.
                if failure.errno not in FULL:
                    self._fail(failure)
                if file_bytes == needed:
                    raise ResourceExhausted(f"no room on {self._directory}") from failure
            file_bytes = needed

    def _prepare_spare(self, file_bytes: int) -> None:
        if self._files.spares:
            self._spare = Spare(self._files, self._directory, file_bytes)
            self._spare.chore = self._chore(self._spare.prepare)

    def _drop_spare(self) -> None:
        """Its file stays, until the next one is made in its place or the journal is opened."""
        spare, self._spare = self._spare, None
        file = spare.take() if spare is not None else None
        if file is not None:
            file.close()

    def _chore(self, work: Callable[[], None]) -> Future[None]:
        """Run housekeeping in the background; nothing depends on its success."""

        def run() -> None:
            try:
                work()
            except OSError as failure:
                self.chore_failure = failure

        self._chores = [chore for chore in self._chores if not chore.done()]
        if self._background is None:
            run()
            done: Future[None] = Future()
            done.set_result(None)
            return done
        chore = self._background.submit(run)
        self._chores.append(chore)
        return chore

    chore_failure: OSError | None = None
    """The last housekeeping that failed."""

    def _list(self, segments: tuple[Segment, ...], live: Int64s) -> None:
        self._live = live
        self._listed = SegmentList(segments)

    # --- reading -------------------------------------------------------------------------------

    def scan(self, after: int) -> Iterator[tuple[int, int, Entry]]:
        """See Journal.scan."""
        self._check_usable()
        position, tail = after + 1, self._tail
        for segment in self._listed.segments:
            if segment.last < position:
                continue
            if segment.first > position:
                break
            memory = segment.load(self._files)
            for place in range(position - segment.first, segment.count):
                at = int(segment.offsets()[place]) << 3
                try:
                    trusted = segment.is_verified(place)
                    found = entry_format.decode(memory.view, at, trusted=trusted)
                except JournalDamaged as damage:
                    raise JournalDamaged(f"{segment.path}, offset {at}: {damage}") from damage
                if found.head.position != position:
                    raise JournalDamaged(f"{segment.path}, offset {at}: not entry {position}")
                yield position, found.head.epoch, found.entry
                position += 1
                if position > tail:
                    return
        if position <= tail:
            raise JournalDamaged(f"{self._directory}: entry {position} was given back")

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        self._check_usable()
        return gather(self._files, self._listed, np.asarray(locators, dtype=np.int64), columns)

    # --- giving room back ----------------------------------------------------------------------

    def adopt(self, live_locators: Iterator[Int64s]) -> None:
        """See Journal.adopt."""
        self._check_usable()
        live = np.zeros(len(self._live) + 1, dtype=np.int64)
        for locators in live_locators:
            places = self._listed.places(locators >> limits.ROW_BITS)
            live += np.bincount(places + 1, minlength=len(live))
        self._live, self._adopted = live[1:], True
        self._give_back()

    def free(self, locators: Int64s) -> None:
        """See Journal.free."""
        self._check_usable()
        if not len(locators) or not self._adopted:
            return
        positions = np.asarray(locators, dtype=np.int64) >> limits.ROW_BITS
        places = self._listed.places(positions)
        there = positions - self._listed.firsts[places] < self._listed.counts[places]
        if not there.all():  # not to be taken off the segment before the gap
            places = places[there]
        self._live -= np.bincount(places + 1, minlength=len(self._live) + 1)[1:]
        if (self._live < 0).any():
            raise InternalError(f"rows of {self._directory} were freed that were not live")
        self._give_back()

    def truncate(self, position: int) -> None:
        """See Journal.truncate. What the older kept snapshot still needs stays until it goes."""
        self._check_usable()
        self._truncated = max(self._truncated, position)
        self._give_back()

    def _replayed(self) -> int:
        """Entries up to here are not needed for any replay."""
        return min(self._truncated, self._shelf.kept_position)

    def _dead(self) -> list[Segment]:
        """Sealed segments without a live row that no replay needs."""
        limit = self._replayed()
        sealed = self._listed.segments[:-1]
        if not self._adopted or not sealed or sealed[0].last > limit or self._live.all():
            return []
        empty = np.flatnonzero(self._live[:-1] <= 0).tolist()
        return [sealed[place] for place in empty if sealed[place].last <= limit]

    def _give_back(self) -> None:
        dead = self._dead()
        if not dead:
            return
        kept = [place for place, one in enumerate(self._listed.segments) if one not in dead]
        segments = self._listed.segments
        self._list(tuple(segments[place] for place in kept), self._live[kept])
        # Where a segment before a gap ends, recovery cannot tell from where the next one begins.
        before_gaps = [segments[place] for place, behind in pairwise(kept) if behind > place + 1]

        def delete() -> None:
            for segment in before_gaps:
                segment.keep_end(self._files)
            for segment in dead:
                segment.close()
                # No sync of the directory: one that comes back is found without live rows again.
                self._files.unlink(segment.path)

        self._chore(delete)

    @property
    def holds_room(self) -> bool:
        """See Journal.holds_room."""
        live = self._live
        return self._adopted and (bool((live[:-1] <= 0).any()) or self._is_oversized())

    def _is_oversized(self) -> bool:
        """Whether the active segment has room for much and nothing live."""
        segments, live = self._listed.segments, self._live
        if not segments or not len(live) or live[-1] > 0:
            return False
        spare = self._spare
        spare_bytes = spare.byte_count if spare is not None else 0
        return segments[-1].byte_count + spare_bytes > self._next_bytes(None)

    def turn_over(self) -> None:
        """See Journal.turn_over."""
        self._turning = self._is_oversized()

    def sparse(self) -> Int64s | None:
        """See Journal.sparse; by the share of bytes that live rows take, as their average says."""
        self._check_usable()
        if not self._adopted:
            return None
        limit, rows = self._replayed(), 0
        runs: list[tuple[int, int]] = []
        for segment, live in zip(self._listed.segments[:-1], self._live.tolist(), strict=False):
            if segment.last > limit or live <= 0 or not segment.readable_rows:
                continue
            live_bytes = segment.readable_bytes * live // segment.readable_rows
            if 100 * live_bytes >= SPARSE_PERCENT * segment.used:
                continue
            if runs and rows + live > SPARSE_ROWS_MAX:
                break
            rows += live
            runs.append((segment.first, segment.last))
        return np.array(runs, dtype=np.int64) if runs else None

    # --- room, snapshots, end ------------------------------------------------------------------

    def has_room(self, byte_count: int) -> bool:
        """See Journal.has_room; the reserve is left to acks and leases."""
        self._check_usable()
        try:
            free_bytes = self._files.free_bytes(self._directory)
        except OSError:
            return False
        return free_bytes - byte_count >= self._reserve_bytes

    def byte_count(self) -> int:
        """See Journal.byte_count."""
        spare = self._spare.byte_count if self._spare is not None else 0
        return sum(segment.byte_count for segment in self._listed.segments) + spare

    def put_snapshot(self, position: int, meta: str, files: Sequence[SnapshotFile]) -> None:
        """See Journal.put_snapshot."""
        self._check_usable()
        if position > self._tail:
            raise InternalError(f"a snapshot of {position} behind the tail {self._tail}")
        try:
            self._shelf.put(position, meta, files)
        except OSError as failure:
            if failure.errno in FULL:
                raise ResourceExhausted(f"no room for a snapshot in {self._directory}") from failure
            raise Unavailable(f"a snapshot in {self._directory} failed: {failure}") from failure

    def latest_snapshot(self) -> Snapshot | None:
        """See Journal.latest_snapshot."""
        self._check_usable()
        return self._shelf.latest()

    def read_snapshot_file(self, name: str) -> memoryview:
        """See Journal.read_snapshot_file."""
        self._check_usable()
        return self._shelf.read(name)

    def close(self) -> None:
        """See Journal.close."""
        if self._failure is None:
            self._failure = f"the journal {self._directory} is closed"
            self._release(marked=True)
        else:
            self._release()

    def _release(self, *, marked: bool = False) -> None:
        self._drop_spare()
        chores, self._chores = self._chores, []
        wait(chores)
        if marked and self._marked < self._tail:
            with suppress(OSError):  # a proof less; nothing else depends on it
                write_mark(self._files, self._directory, self._mark())
        for segment in self._listed.segments:
            segment.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()
