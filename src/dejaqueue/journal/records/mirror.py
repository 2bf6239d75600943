"""A copy of what is at the server, in segment files, to read payloads from at the speed of memory.

It is a cache: nothing is synced, it may lack anything, and it is thrown away wherever it does not
fit the server's chain. Its files are those of the segment journal; between two of them entries may
be missing, which are then read from the server.

Room: journal. `add` by one thread, everything else by any.
Holds: no row is read unverified; a file whose chain is not the server's is deleted; what cannot be
written here is no failure of the journal.
See: segments/segment.py for the files; append_cache.py for what is not here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.encryption.clear_budget import ClearBudget
from dejaqueue.journal.format import Piece
from dejaqueue.journal.interface import Int64s
from dejaqueue.journal.records.append_index import AppendIndex
from dejaqueue.journal.records.reading import EntryFacts
from dejaqueue.journal.segments.clear_text import ClearTexts, WithText
from dejaqueue.journal.segments.files import FileSystem, OpenFile, read_file
from dejaqueue.journal.segments.gather import gather
from dejaqueue.journal.segments.recovery import SUFFIX, segment_name, walk
from dejaqueue.journal.segments.segment import (
    HEAD_BYTES,
    TAIL_BYTES,
    Segment,
    SegmentHead,
    SegmentList,
    SegmentTail,
    index_bytes,
    index_is_right,
)

log = logging.getLogger(__name__)

SEGMENT_BYTES_FIRST: Final = 1 << 20
_PAGE: Final = 4096

Mask = npt.NDArray[np.bool_]


class CacheFile(OpenFile):
    """A file that may be lost."""

    def sync(self) -> None:
        """Not needed: what is lost is read from the server again."""

    def allocate(self, byte_count: int) -> None:
        """Give it its size; a full disk then fails a write, not a reader."""
        super().allocate(byte_count)


class CacheFiles(FileSystem):
    """Files and directories that may be lost."""

    spares = False
    background = False

    def open(self, path: Path, *, create: bool = False) -> OpenFile:
        """Open a file to read and write; `create` makes it empty."""
        return CacheFile(path, create=create)

    def sync_directory(self, directory: Path) -> None:
        """Not needed."""

    def sync_deletions(self, directory: Path) -> None:
        """Make deletions durable: of what is erased nothing comes back."""
        super().sync_directory(directory)


def covers(listed: SegmentList, positions: Int64s) -> Mask:
    """Which of the entries are in the segments."""
    if not listed.segments:
        return np.zeros(len(positions), dtype=np.bool_)
    places = listed.places(positions)
    entries = positions - listed.firsts[places]
    return (entries >= 0) & (entries < listed.counts[places])


def segment_at(listed: SegmentList, position: int) -> Segment | None:
    """The segment that has an entry."""
    if not covers(listed, np.array([position], dtype=np.int64))[0]:
        return None
    return listed.segments[int(listed.places(np.array([position], dtype=np.int64))[0])]


class Mirror:
    """The copy of one partition.

    Args:
        byte_count_max: bytes of all files, about; the oldest go first. None = no limit.
        cipher: what the entries are encrypted with; None = they are not.
        clear_budget: of all copies of the store; None = this one has its own.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        *,
        topic: int,
        partition: int,
        segment_bytes: int,
        byte_count_max: int | None,
        cipher: Cipher | None = None,
        clear_budget: ClearBudget | None = None,
    ) -> None:
        self._clear_texts: ClearTexts | None = None
        if cipher is not None:
            budget = clear_budget or ClearBudget()
            self._clear_texts = ClearTexts(cipher, budget, self._forget_clear)
        self._files, self._directory = files, directory
        self._topic, self._partition = topic, partition
        self._segment_bytes, self._byte_count_max = segment_bytes, byte_count_max
        self._guard = threading.RLock()  # for whoever changes the list of segments
        self._open_file = False
        files.make_directory(directory)
        segments: list[Segment] = []
        for name in files.names(directory):
            segment = self._found(directory / name) if name.endswith(SUFFIX) else None
            if segment is not None and (not segments or segments[-1].last < segment.first):
                segments.append(segment)
            else:
                self._unlink(directory / name)
        self.listed = SegmentList(tuple(segments))

    # --- what an earlier life left -------------------------------------------------------------

    def _found(self, path: Path) -> Segment | None:
        """The segment of a file, as far as it is whole; None if it is none of this partition."""
        try:
            content = read_file(self._files, path)
            head = SegmentHead.decode(content)
            if head is None or (head.directory, head.shard) != (self._topic, self._partition):
                return None
            segment = Segment(path, head.first, head.chain, len(content), self._clear_texts)
            tail = SegmentTail.decode(content)
            if tail is not None and index_is_right(content, tail):
                segment.adopt_tail(tail, content)
            else:
                memory = segment.attach(self._files.open(path))
                walk(segment, memory, None)
                segment.close()
        except (OSError, JournalDamaged, ValueError):
            return None
        return segment if segment.count else None

    def keep_only(self, append_index: AppendIndex) -> None:
        """Throw away what is not what the server has.

        Raises:
            JournalDamaged: the server lacks what it acknowledged: it is here, and follows what the
                server has last.
        """
        kept = []
        for segment in self.listed.segments:
            if self._fits(segment, append_index):
                kept.append(segment)
            else:
                log.warning("%s is not what the server has; it is read again", segment.path)
                self._unlink(segment.path)
        self.listed = SegmentList(tuple(kept))

    def _fits(self, segment: Segment, append_index: AppendIndex) -> bool:
        begin = append_index.chain_at(segment.first)
        if begin is None or begin[0] > segment.last:
            return False
        end = append_index.chain_before(segment.last + 1)
        try:
            if self._chain_before(segment, begin[0]) != begin[1]:
                return False
            if end is None or self._chain_before(segment, end[0]) != end[1]:
                return False
        except (OSError, JournalDamaged):
            return False
        if segment.last > append_index.tail > 0:
            raise JournalDamaged(
                f"{self._directory}: the server ends at entry {append_index.tail}, but it "
                f"acknowledged entries up to {segment.last}: they are in {segment.path}. Either "
                f"bring the server's copy back, or delete this directory and lose them"
            )
        return True

    def _chain_before(self, segment: Segment, position: int) -> int:
        """Checksum of the entry before a position within the segment or right behind it."""
        if position == segment.last + 1:
            return segment.chain
        memory = segment.load(self._files)
        at = int(segment.offsets()[position - segment.first]) << 3
        head = entry_format.peek(memory.view, at)
        if head is None or entry_format.verify(memory.view, at, head) is None:
            raise JournalDamaged(f"{segment.path}, offset {at}: an entry is not what was written")
        return head.previous

    # --- growing -------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """Position of the last entry that is here, 0 if there is none."""
        return self.listed.segments[-1].last if self.listed.segments else 0

    def add(
        self, position: int, chain: int, pieces: Sequence[Piece], entries: Sequence[EntryFacts]
    ) -> None:
        """Keep entries; those that are here already are left out.

        Args:
            position: of the first.
            chain: checksum of the entry before it.
            pieces: their bytes, one after the other.
        """
        with self._guard:
            self._add(position, chain, pieces, entries)

    def _add(
        self, position: int, chain: int, pieces: Sequence[Piece], entries: Sequence[EntryFacts]
    ) -> None:
        if position <= self.last and not self._agrees(position, chain, entries):
            return
        known = max(self.last + 1 - position, 0)
        if known >= len(entries):
            return
        if known:  # the rest of an append of which the beginning is here
            skipped = sum(one.byte_count for one in entries[:known])
            pieces = [memoryview(b"".join(pieces))[skipped:]]
            position, chain = position + known, entries[known - 1].checksum
            entries = entries[known:]
        byte_count = sum(one.byte_count for one in entries)
        try:
            segment = self._segment_for(position, chain, len(entries), byte_count)
            assert segment.file is not None
            segment.file.write(pieces, segment.used)
        except OSError as failure:
            self._open_file = False  # a gap; the next ones begin a new file
            log.warning("%s takes nothing: %s", self._directory, failure)
            return
        offset = segment.used
        for one in entries:
            segment.add(offset, one.kind, one.rows, one.byte_count, one.checksum)
            offset += one.byte_count
        self.listed.counts[-1] = segment.count  # from here on readers see them

    def _agrees(self, position: int, chain: int, entries: Sequence[EntryFacts]) -> bool:
        """Throw away from here on what is not the server's; False if these are not wanted here."""
        segment = segment_at(self.listed, position)
        if segment is None:
            return False  # a gap, which is not filled
        known = min(segment.last + 1 - position, len(entries))
        try:
            right = self._chain_before(segment, position) == chain
            end = self._chain_before(segment, position + known)
        except (OSError, JournalDamaged):
            right, end = False, 0
        if not right or end != entries[known - 1].checksum:
            log.warning("%s is not what the server has; it is read again", segment.path)
            self._drop([one for one in self.listed.segments if one.first >= segment.first])
        return True

    def _segment_for(self, position: int, chain: int, entries: int, byte_count: int) -> Segment:
        segments = self.listed.segments
        goes_on = self._open_file and segments and segments[-1].last + 1 == position
        if goes_on and segments[-1].has_room(entries, byte_count):
            return segments[-1]
        return self._begin(position, chain, entries, byte_count)

    def _begin(self, position: int, chain: int, entries: int, byte_count: int) -> Segment:
        before = self.listed.segments[-1] if self.listed.segments else None
        needed = HEAD_BYTES + byte_count + index_bytes(entries) + TAIL_BYTES
        needed += -needed % _PAGE
        grown = SEGMENT_BYTES_FIRST if before is None else 2 * before.byte_count
        file_bytes = max(needed, min(self._segment_bytes, max(grown, SEGMENT_BYTES_FIRST)))
        if before is not None and self._open_file:
            before.seal()
        path = self._directory / segment_name(position)
        file = self._files.open(path, create=True)
        file.allocate(file_bytes)
        file.write([SegmentHead(self._partition, self._topic, position, chain).encode()], 0)
        segment = Segment(path, position, chain, file_bytes, self._clear_texts)
        segment.attach(file)
        self.listed = SegmentList((*self.listed.segments, segment))
        self._open_file = True
        self._keep_within()
        return segment

    # --- reading -------------------------------------------------------------------------------

    def gather(
        self, listed: SegmentList, locators: Int64s, columns: Sequence[str]
    ) -> pa.RecordBatch:
        """The columns of rows that are here. Raises JournalDamaged: not what was written."""
        return gather(self._files, listed, locators, columns)

    def load(self, segment: Segment) -> memoryview:
        """The bytes of a segment. Raises JournalDamaged."""
        return segment.load(self._files).view

    # --- shrinking -----------------------------------------------------------------------------

    def discard(self, positions: Int64s) -> None:
        """Throw away the files that have these entries: one of them is damaged."""
        with self._guard:
            listed = self.listed
            places = np.unique(listed.places(positions[covers(listed, positions)]))
            self._drop([listed.segments[place] for place in places.tolist()])

    def discard_damaged(self, listed: SegmentList, positions: Int64s) -> None:
        """Throw away the files in which one of these entries is not what was written."""
        places = listed.places(positions)
        involved = [listed.segments[place] for place in np.unique(places).tolist()]
        damaged = []
        for segment, place in zip(involved, np.unique(places).tolist(), strict=True):
            try:
                listed.load(self._files, place)
                if not listed.trusted[place]:
                    entries = np.unique(positions[places == place]) - segment.first
                    listed.verify(place, entries.tolist())
            except (OSError, JournalDamaged):
                damaged.append(segment)
        self._drop(damaged or involved)

    def _forget_clear(self, segment: WithText) -> None:
        """There is no room for what is decrypted of a segment; what is read of it next is again."""
        with self._guard:
            segment.clear = None
            self.listed = SegmentList(self.listed.segments)

    def forget_before(self, position: int) -> None:
        """Entries before this one are not needed any more."""
        with self._guard:
            self._drop([one for one in self.listed.segments[:-1] if one.last < position])

    def erase_before(self, position: int) -> None:
        """No file has an entry of before this one from now on, also after a crash. What lies
        beside such entries is read from the server.

        Raises:
            Unavailable: a file could not be deleted.
        """
        with self._guard:
            self._drop([one for one in self.listed.segments if one.first < position])
            kept = {one.path.name for one in self.listed.segments}
            try:
                left = [one for one in self._files.names(self._directory) if one not in kept]
                for name in left:  # it could not be deleted when it was dropped
                    self._files.unlink(self._directory / name)
                self._files.sync_deletions(self._directory)
            except OSError as failure:
                raise Unavailable(f"{self._directory}: a copy stays: {failure}") from failure

    def _keep_within(self) -> None:
        if self._byte_count_max is None:
            return
        excess = self.byte_count() - self._byte_count_max
        gone = []
        for segment in self.listed.segments[:-1]:
            if excess <= 0:
                break
            excess -= segment.byte_count
            gone.append(segment)
        self._drop(gone)

    def _drop(self, gone: list[Segment]) -> None:
        if not gone:
            return
        with self._guard:
            segments = self.listed.segments
            if segments and segments[-1] in gone:
                self._open_file = False
            self.listed = SegmentList(tuple(one for one in segments if one not in gone))
        for segment in gone:
            segment.close()
            self._unlink(segment.path)

    def _unlink(self, path: Path) -> None:
        try:
            self._files.unlink(path)
        except (OSError, KeyError) as failure:
            log.warning("%s was not deleted: %s", path, failure)

    def byte_count(self) -> int:
        """Bytes of the files."""
        return sum(segment.byte_count for segment in self.listed.segments)

    def close(self) -> None:
        """Release everything; twice is fine."""
        for segment in self.listed.segments:
            try:
                segment.seal()
            except OSError as failure:
                log.warning("%s was not finished: %s", segment.path, failure)
            segment.close()
