"""One segment: a file of entries, its map, and where each entry stands in it.

    header, 64 bytes at the start      trailer, 64 bytes at the end of a sealed segment
     0  8 magic "DEJAQSEG"              0  8 magic "DEJAQEND"
     8  4 version u32 1                 8  8 count u64           entries
    12  4 shard u32                    16  8 used u64            offset where entries end
    16  8 directory u64, its identity  24  8 readable_rows u64   rows that locators may name
    24  8 first position u64           32  8 readable_bytes u64  bytes of their entries
    32  8 chain u64 checksum before    40  8 chain u64           checksum of the last entry
    40 16 reserved                     48  8 index u64           xxh3_64 of the index
    56  8 checksum u64 of 0 to 55      56  8 checksum u64 of 0 to 55

Between entries and trailer, a sealed segment has its index: per entry its offset / 8, u32, padded
to 8 bytes, and then the runs of its partitions (runs.py). A trailer that is damaged or was never
written costs a walk at opening, nothing else.

Room: journal. Knows entries and bytes.
Holds: `count` is raised only after an entry is durable and in `offsets`, so that a reader
that takes `count` first and `offsets` then sees whole entries; an entry is verified before its rows
are read.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import no_master_key
from dejaqueue.journal.format import Encoded
from dejaqueue.journal.interface import Entry, EntryKind
from dejaqueue.journal.segments.clear_text import ClearText, ClearTexts
from dejaqueue.journal.segments.files import FileSystem, OpenFile, read_file
from dejaqueue.journal.segments.memory import SLICE_BITS, Memory, address_of
from dejaqueue.journal.segments.runs import RUN, RUN_BYTES, RunTable, SegmentRuns

HEAD_BYTES: Final = 64
TAIL_BYTES: Final = 64
"""Kept free behind the entries: for the trailer; and short values are read 12 bytes at once."""

READABLE: Final = frozenset({EntryKind.ENQUEUE, EntryKind.RELOCATE})
"""Kinds of entries whose rows locators name: they count as live until freed."""

_HEAD: Final = struct.Struct("<8sIIQQQ16x")
_TAIL: Final = struct.Struct("<8sQQQQQQ")
_CHECKSUM: Final = struct.Struct("<Q")
_HEAD_MAGIC: Final = b"DEJAQSEG"
_TAIL_MAGIC: Final = b"DEJAQEND"
_VERSION: Final = 1
Int64s: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint32]


ALONE: Final = (0, 0)
"""What an entry says of its partition where each has files of its own."""


def index_bytes(entries: int, runs: int = 0) -> int:
    """Bytes of the index of this many entries in so many runs, with its padding."""
    return ((4 * entries + 7) & ~7) + RUN_BYTES * runs


class SegmentHead(NamedTuple):
    """What the header of a segment file says."""

    shard: int
    directory: int
    first: int
    chain: int

    def encode(self) -> bytes:
        """The 64 bytes of it."""
        # fmt: off
        head = _HEAD.pack(_HEAD_MAGIC, _VERSION, self.shard, self.directory, self.first, self.chain)
        # fmt: on
        return head + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(head))

    @staticmethod
    def decode(view: memoryview) -> SegmentHead | None:
        """The header of a segment, None if it is not one."""
        if len(view) < HEAD_BYTES:
            return None
        magic, version, *facts = _HEAD.unpack_from(view)
        right = _CHECKSUM.pack(xxhash.xxh3_64_intdigest(view[:56])) == view[56:64]
        return SegmentHead(*facts) if right and (magic, version) == (_HEAD_MAGIC, 1) else None


class SegmentTail(NamedTuple):
    """What the trailer of a sealed segment says."""

    entries: int
    used: int
    readable_rows: int
    readable_bytes: int
    chain: int
    index_checksum: int

    def encode(self) -> bytes:
        """The 64 bytes of it."""
        tail = _TAIL.pack(_TAIL_MAGIC, *self)
        return tail + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(tail))

    @staticmethod
    def decode(view: memoryview) -> SegmentTail | None:
        """The trailer at the end of a file, None if there is none that fits the file."""
        if len(view) < HEAD_BYTES + TAIL_BYTES:
            return None
        tail = view[-TAIL_BYTES:]
        magic, *facts = _TAIL.unpack_from(tail)
        right = _CHECKSUM.pack(xxhash.xxh3_64_intdigest(tail[:56])) == tail[56:]
        found = SegmentTail(*facts)
        runs_bytes = len(view) - TAIL_BYTES - index_bytes(found.entries) - found.used
        fits = runs_bytes >= 0 and runs_bytes % RUN_BYTES == 0
        return found if right and magic == _TAIL_MAGIC and fits else None


class Segment:
    """A segment file. Grown by the log's one writer, read by any thread.

    Attributes:
        first: position of its first entry.
        chain_before: checksum of the entry before the first.
        chain: checksum of the last entry.
        count: entries, durable ones only.
        used: offset where the entries end.
        byte_count: size of the file.
        readable_rows: rows that locators may name.
        readable_bytes: bytes of the entries with such rows.
        is_sealed: its index and trailer are in the file.
        clear: its entries decrypted, as far as they are; None = nobody has asked for one.
    """

    def __init__(
        self,
        path: Path,
        first: int,
        chain: int,
        byte_count: int,
        clear_texts: ClearTexts | None = None,
    ) -> None:
        self.path, self.first, self.byte_count = path, first, byte_count
        self.chain_before = self.chain = chain
        self.count = self.readable_rows = self.readable_bytes = 0
        self.used = HEAD_BYTES
        self.file: OpenFile | None = None
        # As many as can ever be, in memory that takes room where it is written, so that the array
        # never moves: readers know it by its address.
        entries_max = max(1, byte_count // entry_format.HEADER_BYTES)
        self._offsets: Words = np.frombuffer(mmap.mmap(-1, 4 * entries_max), "<u4")
        self._verified: npt.NDArray[np.bool_] | None = None  # None: every entry is
        self.is_sealed = False
        self._runs = SegmentRuns()
        self._stored_runs: RunTable | None = None
        self._memory: Memory | None = None
        self._clear_texts = clear_texts
        self.clear: ClearText | None = None
        self._end_is_durable = False
        self._loading = threading.Lock()

    @property
    def last(self) -> int:
        """Position of the last entry; first - 1 if there is none."""
        return self.first + self.count - 1

    def has_room(self, entries: int, byte_count: int, runs: int = 0) -> bool:
        """True if these entries fit, with the index and the trailer at the end."""
        index = index_bytes(self.count + entries, len(self._runs) + runs)
        needed = byte_count + index + TAIL_BYTES
        return self.used + needed <= self.byte_count

    def attach(self, file: OpenFile) -> Memory:
        """Map an open file."""
        self.file = file
        self._memory = Memory(file.map(self.byte_count), self.byte_count)
        return self._memory

    def add(
        self,
        offset: int,
        head_kind: int,
        rows: int,
        byte_count: int,
        chain: int,
        owner: tuple[int, int] = ALONE,
    ) -> None:
        """Note a durable entry; its position is `last` + 1.

        Args:
            owner: number of its partition, and its position there; ALONE = the file has entries
                of one partition, and needs no runs.
        """
        self._offsets[self.count] = offset >> 3
        if head_kind in READABLE:
            self.readable_rows += rows
            self.readable_bytes += byte_count
        if owner != ALONE:
            self._runs.add(*owner, rows if head_kind in READABLE else 0, byte_count)
        self.used, self.chain = offset + byte_count, chain
        self.count += 1

    def add_all(
        self, entries: Sequence[Entry], stored: Sequence[Encoded], owner: tuple[int, int]
    ) -> int:
        """Note durable entries of one partition that were appended behind the last one; return how
        many rows of them locators may name.

        Args:
            owner: number of the partition, and the position of the first of them there.
        """
        offsets, start, end, place = self._offsets, self.used, self.used, self.count
        rows = readable_bytes = 0
        clear = self.clear
        for entry, one in zip(entries, stored, strict=True):
            offsets[place] = end >> 3
            if clear is not None and one.clear:
                clear.put(place, end, one.clear)
            place += 1
            end += one.byte_count
            if entry.kind in READABLE:
                rows += entry.rows
                readable_bytes += one.byte_count
        self._runs.add(*owner, rows, end - start, len(entries))
        self.readable_rows += rows
        self.readable_bytes += readable_bytes
        self.used, self.chain = end, stored[-1].checksum
        self.count = place
        return rows

    def restart(self) -> None:
        """Forget what the trailer said of the entries: they are walked."""
        self.count = self.readable_rows = self.readable_bytes = 0
        self._stored_runs, self._runs = None, SegmentRuns()

    def runs(self) -> RunTable:
        """The runs in it, until `forget_runs`."""
        return self._runs.table() if self._stored_runs is None else self._stored_runs

    def forget_runs(self) -> None:
        """Whoever needs the runs has them; what is not stored yet stays."""
        self._stored_runs = None
        if self.is_sealed:
            self._runs = SegmentRuns()

    def adopt_tail(self, tail: SegmentTail, content: memoryview) -> None:
        """Take over what the trailer says; the index is mapped when first needed.

        Args:
            content: of the file.
        """
        self.is_sealed = True
        runs = content[tail.used + index_bytes(tail.entries) : len(content) - TAIL_BYTES]
        self._stored_runs = np.frombuffer(runs, RUN)
        self.count, self.used, self.chain = tail.entries, tail.used, tail.chain
        self.readable_rows, self.readable_bytes = tail.readable_rows, tail.readable_bytes
        self._memory = None

    def load(self, files: FileSystem) -> Memory:
        """The mapped bytes; of a sealed segment from an earlier life, mapped now with its index.

        Raises:
            JournalDamaged: the index is not what was written.
        """
        memory = self._memory
        if memory is not None:
            return memory
        with self._loading:
            if self._memory is None:
                self._memory = self._load(files)
            return self._memory

    def _load(self, files: FileSystem) -> Memory:
        file = files.open(self.path)
        try:
            memory = Memory(file.map(self.byte_count), self.byte_count)
        finally:
            file.close()
        tail = SegmentTail.decode(memory.view)
        if tail is None or not index_is_right(memory.view, tail):
            raise JournalDamaged(f"{self.path}, offset {self.used}: the index is damaged")
        # The index stays in the file: 4 bytes per entry of old segments need no memory.
        self._offsets = np.frombuffer(memory.view, "<u4", tail.entries, tail.used)
        self._verified = np.zeros(tail.entries, dtype=np.bool_)
        return memory

    def is_loaded(self) -> bool:
        """True if it is mapped."""
        return self._memory is not None

    def memory(self) -> Memory:
        """The mapped bytes, after `load`."""
        assert self._memory is not None
        return self._memory

    def offsets(self) -> Words:
        """Offset / 8 of each entry, uint32 array, at least `count` long; after `load`."""
        return self._offsets

    def verified(self) -> npt.NDArray[np.bool_] | None:
        """Which entries were verified since opening; None = every one is. After `load`."""
        return self._verified

    def verify(self, places: list[int]) -> None:
        """Check the checksums of entries that were not checked before; after `load`.

        Raises:
            JournalDamaged: naming file and offset.

        Cost: once per entry and opening; entries written or replayed since opening need none.
        """
        verified, memory = self._verified, self._memory
        assert verified is not None
        assert memory is not None
        for place in places:
            at = int(self._offsets[place]) << 3
            head = entry_format.peek(memory.view, at)
            right = head is not None and head.position == self.first + place
            if head is None or not right or entry_format.verify(memory.view, at, head) is None:
                raise JournalDamaged(f"{self.path}, offset {at}: an entry is not what was written")
            if head.is_sealed and self._clear_texts is None:
                raise no_master_key(f"{self.path}, offset {at}")
            verified[place] = True

    @property
    def is_encrypted(self) -> bool:
        """Whether entries are decrypted before they are read."""
        return self._clear_texts is not None

    def clear_text(self) -> ClearText:
        """Its entries decrypted, as far as they are, until `forget_clear`; after `load`."""
        with self._loading:
            if self.clear is None:
                entries_max = max(1, self.byte_count // entry_format.HEADER_BYTES)
                self.clear = ClearText(self.byte_count, entries_max)
            return self.clear

    def decrypt(self, places: list[int], clear: ClearText) -> None:
        """Put entries into a clear text; after `load`.

        Raises:
            JournalDamaged: naming file and offset. EncryptionKeyMissing.
        """
        assert self._clear_texts is not None
        memory = self.memory()
        if self._verified is not None:
            self.verify([place for place in places if not self._verified[place]])
        for place in places:
            at = int(self._offsets[place]) << 3
            head = entry_format.peek(memory.view, at)
            try:
                if head is None or head.position != self.first + place:
                    raise JournalDamaged("an entry is not what was written")
                byte_count = entry_format.decrypt_into(
                    memory.view, at, head, self._clear_texts.cipher, clear.memory.view
                )
            except JournalDamaged as damage:
                raise JournalDamaged(f"{self.path}, offset {at}: {damage}") from damage
            clear.note(place, byte_count)
        self._clear_texts.budget.count(self)

    def count_clear(self) -> None:
        """Entries were added: others may have to be forgotten for them. For who holds no lock."""
        if self._clear_texts is not None:
            self._clear_texts.budget.count(self)

    def forget_clear(self) -> None:
        """There is no more room for its decrypted entries; who reads them yet keeps them."""
        if self._clear_texts is not None:
            self._clear_texts.forget(self)

    def is_verified(self, place: int) -> bool:
        """True if the checksum of an entry was checked since opening."""
        return self._verified is None or bool(self._verified[place])

    def seal(self) -> None:
        """Write index and trailer, give the rest back to the disk. Nothing depends on its success.

        No sync: a trailer lost to a power cut costs a walk at the next opening, unless segments
        behind it were deleted; see `keep_end`.
        """
        file = self.file
        if file is None:
            return
        index = self._offsets[: self.count].tobytes()
        index += bytes(-len(index) & 7)
        index += self._runs.encode()
        # fmt: off
        tail = SegmentTail(
            self.count, self.used, self.readable_rows, self.readable_bytes, self.chain,
            xxhash.xxh3_64_intdigest(index),
        ).encode()
        # fmt: on
        byte_count = self.used + len(index) + TAIL_BYTES
        file.write([index, tail], self.used)
        file.truncate(byte_count)
        self.byte_count = byte_count
        self.is_sealed = True
        self.close()

    def keep_end(self, files: FileSystem) -> None:
        """Make index and trailer durable: once what follows is deleted only they say where it ends.

        Raises:
            OSError: it may be lost to a power cut yet.
        """
        if self._end_is_durable:
            return
        content = read_file(files, self.path)
        if SegmentTail.decode(content) is None:  # there was no room for it
            self.file = self.file or files.open(self.path)
            self.seal()
            content = read_file(files, self.path)
        file = files.open(self.path)
        try:
            # Written again: after a sync that failed the system may show as durable what is not.
            file.write([bytes(content[self.used :])], self.used)
            file.sync()
        finally:
            file.close()
        self._end_is_durable = True

    def close(self) -> None:
        """Close the file; arrays and maps in use stay valid."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


def index_is_right(view: memoryview, tail: SegmentTail) -> bool:
    """True if the index of a sealed segment is what its trailer was written for."""
    index = view[tail.used : len(view) - TAIL_BYTES]
    return xxhash.xxh3_64_intdigest(index) == tail.index_checksum


class SegmentList:
    """The segments of a journal at one moment, as columns: replaced when one comes or goes.

    Attributes:
        segments: by position.
        firsts: int64 array of their first positions.
        counts: int64 array of their entries; the last is raised in place as entries become durable.
        loaded: which are mapped; what follows is set before it.
        trusted: segments whose entries were all verified, and are not encrypted.
        clears: by place, the clear text of those that are encrypted.
        bases: place of the first byte in SPACE of what is read, the map or the clear text.
        indexes: place of its index (offset / 8 per entry) in SPACE.words.
        flags: place of its flags of entries that may be read in SPACE, if it is not trusted.
        buffers: the Arrow buffers of all segments.
        buffer_places: int32, place of a segment's first buffer in `buffers`.
    """

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        count = len(segments)
        self.firsts = np.array([segment.first for segment in segments], dtype=np.int64)
        self.counts = np.array([segment.count for segment in segments], dtype=np.int64)
        self.loaded, self.trusted = np.zeros((2, count), dtype=np.bool_)
        self.bases, self.indexes, self.flags = np.zeros((3, count), dtype=np.int64)
        slices = [-(-segment.byte_count // (1 << SLICE_BITS)) for segment in segments]
        self.clears: dict[int, ClearText] = {}
        self.buffer_places = np.cumsum([0, *slices], dtype=np.int32)
        self.buffers: list[pa.Buffer] = [pa.py_buffer(b"")] * int(self.buffer_places[-1])
        for place, segment in enumerate(segments):
            if segment.is_loaded():
                self._enter(place, segment)

    def places(self, positions: Int64s) -> Int64s:
        """Per position the place of its segment, -1 before the first; it may lie in a gap."""
        return self.firsts.searchsorted(positions, side="right") - 1

    def load(self, files: FileSystem, place: int) -> None:
        """Map a segment.

        Raises:
            JournalDamaged: its index is not what was written.
        """
        segment = self.segments[place]
        segment.load(files)
        self._enter(place, segment)

    def _enter(self, place: int, segment: Segment) -> None:
        memory, verified = segment.memory(), segment.verified()
        if segment.is_encrypted:
            clear = self.clears[place] = segment.clear_text()
            memory, verified = clear.memory, clear.flags
        start = int(self.buffer_places[place])
        self.buffers[start : start + len(memory.buffers)] = memory.buffers
        self.bases[place] = memory.address
        self.indexes[place] = address_of(segment.offsets()) >> 2
        self.trusted[place] = verified is None
        if verified is not None:
            self.flags[place] = address_of(verified)
        self.loaded[place] = True

    def verify(self, place: int, entries: list[int]) -> None:
        """Have entries of a segment that is not trusted so that rows of them may be read.

        Raises:
            JournalDamaged: naming file and offset. EncryptionKeyMissing.
        """
        clear = self.clears.get(place)
        if clear is None:
            self.segments[place].verify(entries)
        else:
            self.segments[place].decrypt(entries, clear)
