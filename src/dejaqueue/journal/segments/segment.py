"""One segment: a file of entries, its map, and where each entry stands in it.

    header, 64 bytes at the start      trailer, 64 bytes at the end of a sealed segment
     0  8 magic "DEJAQSEG"              0  8 magic "DEJAQEND"
     8  4 version u32 1                 8  8 count u64           entries
    12  4 partition u32                16  8 used u64            offset where entries end
    16  8 topic u64 xxh3_64 of name    24  8 readable_rows u64   rows that locators may name
    24  8 first position u64           32  8 readable_bytes u64  bytes of their entries
    32  8 chain u64 checksum before    40  8 chain u64           checksum of the last entry
    40 16 reserved                     48  8 index u64           xxh3_64 of the index
    56  8 checksum u64 of 0 to 55      56  8 checksum u64 of 0 to 55

Between entries and trailer, a sealed segment has its index: per entry its offset / 8, u32, padded
to 8 bytes. A trailer that is damaged or was never written costs a walk at opening, nothing else.

Room: journal. Knows entries and bytes.
Holds: `count` is raised only after an entry is durable and in `offsets`, so that who reads
`count` first and `offsets` then sees whole entries; an entry is verified before its rows are read.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.interface import EntryKind
from dejaqueue.journal.segments.files import FileSystem, OpenFile

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
_SLICE_BITS: Final = 30
_SLICE_BYTES: Final = (1 << 31) - 1

Int64s: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint32]


def index_bytes(entries: int) -> int:
    """Bytes of the index of so many entries, with its padding."""
    return (4 * entries + 7) & ~7


class SegmentHead(NamedTuple):
    """What the header of a segment file says."""

    partition: int
    topic: int
    first: int
    chain: int

    def encode(self) -> bytes:
        """The 64 bytes of it."""
        # fmt: off
        head = _HEAD.pack(_HEAD_MAGIC, _VERSION, self.partition, self.topic, self.first, self.chain)
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
        fits = found.used + index_bytes(found.entries) + TAIL_BYTES == len(view)
        return found if right and magic == _TAIL_MAGIC and fits else None


class Memory:
    """The bytes of a segment as arrays.

    Attributes:
        view: all of it, as bytes.
        words: int32 array over the bytes, for header fields and offsets.
        anywhere: int32 array with a step of one byte: 4 bytes at any offset.
        buffers: Arrow buffers over the bytes; buffer k starts at k << 30, since a view's offset
            is int32.
    """

    __slots__ = ("anywhere", "buffers", "view", "words")

    def __init__(self, content: mmap.mmap, byte_count: int) -> None:
        self.view = memoryview(content)[:byte_count]
        self.words: npt.NDArray[np.int32] = np.frombuffer(content, "<i4", byte_count // 4)
        self.anywhere: npt.NDArray[np.int32] = np.ndarray(
            (byte_count - 3,), dtype="<i4", buffer=content, strides=(1,)
        )
        whole = pa.py_buffer(content)
        starts = range(0, byte_count, 1 << _SLICE_BITS)
        self.buffers = [whole.slice(at, min(_SLICE_BYTES, byte_count - at)) for at in starts]


class Segment:
    """A segment file. Grown by the partition's one writer, read by any thread.

    Attributes:
        first: position of its first entry.
        chain_before: checksum of the entry before the first.
        chain: checksum of the last entry.
        count: entries, durable ones only.
        used: offset where the entries end.
        byte_count: size of the file.
        readable_rows: rows that locators may name.
        readable_bytes: bytes of the entries with such rows.
    """

    def __init__(self, path: Path, first: int, chain: int, byte_count: int) -> None:
        self.path, self.first, self.byte_count = path, first, byte_count
        self.chain_before = self.chain = chain
        self.count = self.readable_rows = self.readable_bytes = 0
        self.used = HEAD_BYTES
        self.file: OpenFile | None = None
        self._offsets: Words = np.zeros(64, dtype=np.uint32)
        self._verified: npt.NDArray[np.bool_] | None = None  # None: every entry is
        self._memory: Memory | None = None

    @property
    def last(self) -> int:
        """Position of the last entry; first - 1 if there is none."""
        return self.first + self.count - 1

    def has_room(self, entries: int, byte_count: int) -> bool:
        """True if so many entries of so many bytes fit, with the index and trailer of the end."""
        needed = byte_count + index_bytes(self.count + entries) + TAIL_BYTES
        return self.used + needed <= self.byte_count

    def attach(self, file: OpenFile) -> Memory:
        """Map an open file."""
        self.file = file
        self._memory = Memory(file.map(self.byte_count), self.byte_count)
        return self._memory

    def add(self, offset: int, head_kind: int, rows: int, byte_count: int, chain: int) -> None:
        """Note a durable entry; its position is `last` + 1."""
        if self.count == len(self._offsets):
            self._offsets = np.concatenate([self._offsets, np.zeros_like(self._offsets)])
        self._offsets[self.count] = offset >> 3
        if head_kind in READABLE:
            self.readable_rows += rows
            self.readable_bytes += byte_count
        self.used, self.chain = offset + byte_count, chain
        self.count += 1

    def adopt_tail(self, tail: SegmentTail) -> None:
        """Take over what the trailer says; the index is mapped when first needed."""
        self.count, self.used, self.chain = tail.entries, tail.used, tail.chain
        self.readable_rows, self.readable_bytes = tail.readable_rows, tail.readable_bytes
        self._memory = None

    def load(self, files: FileSystem) -> Memory:
        """The mapped bytes; of a sealed segment from an earlier life, mapped now with its index.

        Raises:
            JournalDamaged: the index is not what was written.
        """
        memory = self._memory
        if memory is None:
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
            self._memory = memory
        return memory

    def offsets(self) -> Words:
        """Offset / 8 of each entry, uint32 array, at least `count` long; after `load`."""
        return self._offsets

    def verify(self, entries: Int64s) -> None:
        """Check the checksums of entries (their places here) that were not checked before.

        Raises:
            JournalDamaged: naming file and offset.

        Cost: once per entry and opening; entries written or replayed since opening need none.
        """
        verified, memory = self._verified, self._memory
        if verified is None or memory is None or verified[entries].all():
            return
        for place in np.unique(entries[~verified[entries]]).tolist():
            at = int(self._offsets[place]) << 3
            head = entry_format.peek(memory.view, at)
            right = head is not None and head.position == self.first + place
            if head is None or not right or entry_format.verify(memory.view, at, head) is None:
                raise JournalDamaged(f"{self.path}, offset {at}: an entry is not what was written")
            verified[place] = True

    def is_verified(self, place: int) -> bool:
        """True if the checksum of an entry was checked since opening."""
        return self._verified is None or bool(self._verified[place])

    def seal(self) -> None:
        """Write index and trailer, give the rest back to the disk. Nothing depends on its success.

        No sync: a trailer lost to a power cut costs a walk at the next opening.
        """
        file = self.file
        if file is None:
            return
        index = self._offsets[: self.count].tobytes()
        index += bytes(-len(index) & 7)
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
        self.close()

    def close(self) -> None:
        """Close the file; arrays and maps in use stay valid."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


def index_is_right(view: memoryview, tail: SegmentTail) -> bool:
    """True if the index of a sealed segment is what its trailer was written for."""
    index = view[tail.used : tail.used + index_bytes(tail.entries)]
    return xxhash.xxh3_64_intdigest(index) == tail.index_checksum


class SegmentList:
    """The segments of a journal at one moment: never changed, replaced as a whole.

    Attributes:
        segments: by position.
        firsts: int64 array of their first positions.
    """

    __slots__ = ("firsts", "segments")

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self.firsts: Int64s = np.array([segment.first for segment in segments], dtype=np.int64)

    def places(self, positions: Int64s) -> Int64s:
        """Per position the place of its segment, -1 before the first; it may lie in a gap."""
        return self.firsts.searchsorted(positions, side="right") - 1
