"""The next segment's file, made ready in the background while the active one fills up.

Syncs into blocks that were written before need no change of the file's extents. Measured on ext4
(p50, µs, 4 KB / 128 KB / 1 MB per append): growing file 188 / 570 / 594; allocated with
`posix_fallocate` 147 / 211 / 497; allocated and written with zeros 94 / 125 / 297. So the spare is
allocated first, which is all that safety needs, and then zeroed in steps, each synced, so that no
sync of the journal waits behind a heap of zeros (64 MiB in one go: p99.9 13 ms instead of 2 ms).
A spare that is needed before it is ready is taken as far as it got.

Room: journal. Knows no entries.
Holds: a spare that could not be made is no error: the journal makes its next file itself.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from dejaqueue.journal.segments.files import FileSystem, OpenFile

SPARE_SUFFIX: Final = ".spare"
_ZEROS: Final = bytes(512 << 10)


def allocate_file(files: FileSystem, path: Path, byte_count: int) -> OpenFile:
    """A new file with all its blocks; nothing is left of it if that fails."""
    file = files.open(path, create=True)
    try:
        file.allocate(byte_count)
    except OSError:
        file.close()
        files.unlink(path)
        raise
    return file


class Spare:
    """One file in the making.

    Attributes:
        byte_count: its size.
        chore: the work on it, set by whoever started it.
    """

    def __init__(self, files: FileSystem, directory: Path, byte_count: int) -> None:
        self._files, self._path = files, directory / f"next{SPARE_SUFFIX}"
        self._file: OpenFile | None = None
        self._taken = threading.Event()
        self.byte_count = byte_count
        self.chore: Future[None] | None = None

    def prepare(self) -> None:
        """Allocate and zero the file. Raises OSError if it cannot be."""
        if self._taken.is_set():
            return
        file = allocate_file(self._files, self._path, self.byte_count)
        try:
            for offset in range(0, self.byte_count, len(_ZEROS)):
                if self._taken.is_set():
                    break
                file.write([memoryview(_ZEROS)[: self.byte_count - offset]], offset)
                file.sync()
        except OSError:
            file.close()
            raise
        self._file = file

    def take(self) -> OpenFile | None:
        """The file as far as it is ready, None if it could not be made. Waits for one step."""
        self._taken.set()
        if self.chore is not None and not self.chore.cancel():
            self.chore.result()
        return self._file
