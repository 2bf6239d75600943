"""What of encrypted segments is decrypted, in memory, for as long as there is room for it.

A segment's file has what is encrypted. Rows are read from a map as large as the file, in which an
entry is put, decrypted, at the offset that it has there: as it is appended if it is small, else as
a row of it is first asked for. Its pages take room as they are written. When all of a store take
more than they may, the segments used longest ago lose theirs; what is read of them later is
decrypted again.

Room: journal. Any thread.
Holds: whoever reads has the SegmentList, which keeps the map, whatever is forgotten meanwhile; a
flag is set after the bytes of its entry are there.
See: segment.py; gather.py; docs/adr/0044-encryption-at-rest.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.encryption.clear_budget import ClearBudget
from dejaqueue.journal.segments.memory import Memory


def _new_map(byte_count: int) -> mmap.mmap:
    """Memory of this process alone: its pages come a quarter sooner than those of shared memory."""
    return mmap.mmap(-1, byte_count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class ClearText:
    """The decrypted entries of one segment.

    Attributes:
        memory: where they are.
        flags: bool array; place k is the segment's entry k, and whether it is there.
        byte_count: of those that are there.
        counted_bytes: the same when they were counted last.
    """

    __slots__ = ("byte_count", "counted_bytes", "flags", "memory")

    def __init__(self, byte_count: int, entries_max: int) -> None:
        self.memory = Memory(_new_map(byte_count), byte_count)
        self.flags: npt.NDArray[np.bool_] = np.frombuffer(_new_map(entries_max), np.bool_)
        self.byte_count = self.counted_bytes = 0

    def put(self, place: int, at: int, clear: bytes | memoryview) -> None:
        """Here is an entry, for the offset that it has in the file."""
        self.memory.view[at : at + len(clear)] = clear
        self.note(place, len(clear))

    def note(self, place: int, byte_count: int) -> None:
        """An entry was put into `memory`."""
        self.flags[place] = True
        self.byte_count += byte_count


class WithText(Protocol):
    """A segment, as far as it matters here.

    Attributes:
        clear: what of it is decrypted.
    """

    clear: ClearText | None

    def forget_clear(self) -> None:
        """Let go of what is decrypted."""
        ...


class ClearTexts:
    """How the segments of one log, or of one copy, are decrypted.

    Args:
        forget: called with a segment whose decrypted entries have to go.
    """

    __slots__ = ("budget", "cipher", "forget")

    def __init__(
        self, cipher: Cipher, budget: ClearBudget, forget: Callable[[WithText], None]
    ) -> None:
        self.cipher, self.budget, self.forget = cipher, budget, forget
