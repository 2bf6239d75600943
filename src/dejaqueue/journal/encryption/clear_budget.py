"""How much of what a store has encrypted is decrypted in memory at the same time.

Room: journal. Any thread; knows sizes alone.
Holds: what goes is what was used longest ago, never what was decrypted just now.
See: segments/clear_text.py.
"""

from __future__ import annotations

import threading
import weakref
from typing import Final, Protocol

BYTES_MAX: Final = 256 << 20
"""Of all segments of a store, about."""
_STEP_BITS: Final = 8
"""So small a share of the budget may be decrypted of a segment before it is counted again."""


class ClearCounts(Protocol):
    """WithText entries.

    Attributes:
        byte_count: of those that are there.
        counted_bytes: the same when they were counted last.
    """

    byte_count: int
    counted_bytes: int


class HasClearText(Protocol):
    """A segment, as far as it matters here."""

    @property
    def clear(self) -> ClearCounts | None:
        """What of it is decrypted."""
        ...

    def forget_clear(self) -> None:
        """Let go of that. Takes a lock."""
        ...


class ClearBudget:
    """How much of all segments of a store is decrypted at the same time."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._step_bytes = bytes_max >> _STEP_BITS
        self._guard = threading.Lock()
        self._segments: list[weakref.ref[HasClearText]] = []

    def count(self, segment: HasClearText) -> None:
        """More of a segment was decrypted: others may have to be forgotten for it. Takes locks of
        their logs; for who holds none."""
        clear = segment.clear
        if clear is None or clear.byte_count - clear.counted_bytes < self._step_bytes:
            return
        clear.counted_bytes = clear.byte_count
        with self._guard:
            there = [one for ref in self._segments if (one := ref()) is not None]
            kept = [one for one in there if one is not segment and one.clear is not None]
            self._segments = [weakref.ref(one) for one in (*kept, segment)]
            excess = clear.byte_count - self.bytes_max
            excess += sum(one.clear.byte_count for one in kept if one.clear is not None)
            gone = []
            for one in kept:
                if excess > 0 and one.clear is not None:
                    excess -= one.clear.byte_count
                    gone.append(one)
        for one in gone:
            one.forget_clear()
