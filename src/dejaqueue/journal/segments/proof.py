"""Proofs of what was appended last: where an append ends, and a mark of the tail.

    end of an append, 40 bytes         tail.mark, 64 bytes at 0 and again at 4096
     0  8 magic "DEJAQFIN"              0  8 magic "DEJAQTIP"
     8  8 after u64    tail before it   8  4 version u32 1
    16  8 bytes u64    of its entries  12  4 shard u32
    24  8 chain u64    checksum of     16  8 directory u64, its identity
                       the entry       24  8 position u64  of the last entry
                       before it       32  8 chain u64     its checksum
    32  8 checksum     of 0 to 31      40 16 reserved
                                       56  8 checksum u64  of 0 to 55

An append is followed by its end, which the next append, or the index of a sealed segment, writes
over. If the end is there and no sector before it was left out, the append was written in full:
what is wrong in it is damage. The mark says that all entries up to one were synced. It is written
when a log rests and when it is closed, never while somebody waits for an append.

Room: journal. Knows bytes and sectors, not what entries say.
Holds: a mark is written after the sync of what it names, so it is true whenever it is readable.
See: recovery.py beside; docs/adr/0029-damage-and-torn-appends.md.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xxhash

from dejaqueue.journal.format import MAGIC
from dejaqueue.journal.segments.files import FileSystem, is_there, read_file

MARK_NAME: Final = "tail.mark"
FLOOR_NAME: Final = "floor.mark"
"""A mark of the same layout: no replay needs an entry up to its position; it has no chain."""
SECTOR_BYTES: Final = 512
"""The least that a disk writes as a whole."""
END_BYTES: Final = 40

_END: Final = struct.Struct("<8sQQQ")
_END_MAGIC: Final = b"DEJAQFIN"
_MARK: Final = struct.Struct("<8sIIQQQ16x")
_MARK_MAGIC: Final = b"DEJAQTIP"
_MARK_BYTES: Final = 64
_COPY_OFFSET: Final = 4096
_FILE_BYTES: Final = 2 * _COPY_OFFSET
_CHECKSUM: Final = struct.Struct("<Q")
_ENTRY_MAGIC: Final = MAGIC.to_bytes(4, "little")


def begun_path(directory: Path) -> Path:
    """What says beside the directory of a log that there were entries in it."""
    return directory.with_name(f"{directory.name}.begun")


def has_begun(files: FileSystem, directory: Path) -> bool:
    """Whether the log of a directory ever had an entry."""
    return is_there(files, begun_path(directory))


def _sealed(content: bytes) -> bytes:
    return content + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(content))


def _is_right(content: memoryview) -> bool:
    return _CHECKSUM.pack(xxhash.xxh3_64_intdigest(content[:-8])) == content[-8:]


class AppendEnd(NamedTuple):
    """What is written behind an append.

    Attributes:
        after: the tail before it.
        byte_count: of its entries, which lie right before this.
        chain_before: checksum of the entry before its first.
    """

    after: int
    byte_count: int
    chain_before: int

    def encode(self) -> bytes:
        """The 40 bytes of it."""
        return _sealed(_END.pack(_END_MAGIC, *self))

    @staticmethod
    def decode(view: memoryview, at: int) -> AppendEnd | None:
        """The end at this offset, None if there is none."""
        content = view[at : at + END_BYTES]
        if len(content) < END_BYTES or not _is_right(content):
            return None
        magic, *facts = _END.unpack_from(content)
        return AppendEnd(*facts) if magic == _END_MAGIC else None


def find_end(view: memoryview, start: int, after: int, chain_before: int) -> int | None:
    """Offset of the end of the append that begins at `start`, None if it was not written.

    Cost: one look at each word behind `start`.
    """
    words = np.frombuffer(view, "<u8", (len(view) - start) // 8, start)
    magic = int.from_bytes(_END_MAGIC, "little")
    for place in np.flatnonzero(words == magic).tolist():
        expected = AppendEnd(after, 8 * place, chain_before)
        if AppendEnd.decode(view, start + 8 * place) == expected:
            return start + 8 * place
    return None


def lacks_sectors(view: memoryview, start: int, end: int) -> bool:
    """Whether a crash may have left out a sector of what was written from `start` to `end`.

    What lay there before were zeros, or the end of the append before, at `start`. A sector that is
    one of these may not have been written. (It may also hold zeros that somebody sent.)
    """
    origin = start - start % SECTOR_BYTES
    sectors = np.zeros(-(-(end - origin) // SECTOR_BYTES) * SECTOR_BYTES, np.uint8)
    fresh = min(start + END_BYTES, end)
    sectors[fresh - origin : end - origin] = np.frombuffer(view, np.uint8, end - fresh, fresh)
    written = [bool(sector.any()) for sector in sectors.reshape(-1, SECTOR_BYTES)]
    begun = bytes(view[start : start + 4]) == _ENTRY_MAGIC
    return not all([begun or written[0], *written[1:]])


class TailMark(NamedTuple):
    """All entries up to one are durable.

    Attributes:
        directory: identity of the data directory.
        position: of the last entry that is known to be durable.
        chain: its checksum.
    """

    shard: int
    directory: int
    position: int
    chain: int

    def encode(self) -> bytes:
        """The 64 bytes of it."""
        return _sealed(_MARK.pack(_MARK_MAGIC, 1, *self))

    @staticmethod
    def decode(content: memoryview) -> TailMark | None:
        """The mark in these bytes, None if it is not what was written."""
        if len(content) < _MARK_BYTES or not _is_right(content[:_MARK_BYTES]):
            return None
        magic, version, *facts = _MARK.unpack_from(content)
        return TailMark(*facts) if (magic, version) == (_MARK_MAGIC, 1) else None


class FoundMark(NamedTuple):
    """What is in the file of the mark.

    Attributes:
        mark: None if there is none.
        damaged: in words, "" = both copies are what was written.
    """

    mark: TailMark | None
    damaged: str = ""


def read_mark(
    files: FileSystem, directory: Path, identity: int, shard: int, name: str = MARK_NAME
) -> FoundMark:
    """The mark of a log. A copy that is damaged proves nothing; the other one does."""
    path = directory / name
    if name not in files.names(directory):
        return FoundMark(None)
    content = read_file(files, path)
    copies = [content[at : at + _MARK_BYTES] for at in (0, _COPY_OFFSET)]
    if not any(any(copy) for copy in copies):
        return FoundMark(None)  # the crash came before the first mark
    marks = [TailMark.decode(copy) for copy in copies]
    ours = [one for one in marks if one and (one.directory, one.shard) == (identity, shard)]
    damaged = f"{path}: a mark is not what was written" if len(ours) < len(copies) else ""
    return FoundMark(max(ours, key=lambda one: one.position, default=None), damaged)


def write_mark(files: FileSystem, directory: Path, mark: TailMark, name: str = MARK_NAME) -> None:
    """Store a mark durably: both copies with one write and one sync. Raises OSError.

    A crash may leave one copy old and one new, in sectors far apart, and both are true.
    """
    path = directory / name
    is_new = name not in files.names(directory)
    file = files.open(path, create=is_new)
    try:
        if file.byte_count() < _FILE_BYTES:
            file.allocate(_FILE_BYTES)
        content = mark.encode()
        file.write([content, bytes(_COPY_OFFSET - _MARK_BYTES), content], 0)
        file.sync()
    finally:
        file.close()
    if is_new:
        files.sync_directory(directory)
