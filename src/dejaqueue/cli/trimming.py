"""Memory that the C library keeps for itself, given back to the system while a broker serves.

Room: cli; `dejaq serve` alone runs it, as it concerns the whole process.
Holds: who needs no memory pays nothing; who frees much gives it back within seconds.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dejaqueue.clock import Clock, SteadyClock, Wake

LOOK_US = 1_000_000
PAUSE_US = 10_000_000
"""Trimming holds up who needs memory meanwhile: 15 ms for the first figure below, measured."""
GROWN_BYTES = 128 << 20
GROWN_FAST_BYTES = 512 << 20
"""So much more than after the last time is trimmed at once."""


class Trimmer:
    """Has the C library give back what it keeps, whenever that may be much.

    Batches arrive in small pieces, on many threads; glibc keeps what they leave behind, in pools of
    its own for each thread. After floods of 9 GB, of which most was refused, a broker held 1.2 GB,
    and 0.1 GB after `malloc_trim`.

    Args:
        own_bytes: memory that is this process's alone.
        trim: gives back what can be given back.
    """

    def __init__(
        self, own_bytes: Callable[[], int], trim: Callable[[], None], clock: Clock | None = None
    ) -> None:
        self._own_bytes, self._trim = own_bytes, trim
        self._clock = clock or SteadyClock()
        self._before = own_bytes()
        self._next_us, self._again = 0, False
        self._stopping = False
        self._bell = Wake()
        self._thread = threading.Thread(target=self._run, name="dejaq-trim", daemon=True)

    def start(self) -> None:
        """Look once a second from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Twice or before start is fine."""
        self._stopping = True
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> bool:
        """Trim if that is worth it; True if it was done."""
        now_us, had = self._clock.now_us(), self._own_bytes()
        grown = had - self._before
        may = now_us >= self._next_us
        worth = grown >= GROWN_FAST_BYTES or (may and (grown >= GROWN_BYTES or self._again))
        if not worth:
            self._before += min(grown, 0)
            return False
        self._trim()
        self._before, self._next_us = self._own_bytes(), now_us + PAUSE_US
        # What was in use now may be kept for nothing soon.
        self._again = grown >= GROWN_BYTES or had - self._before >= GROWN_BYTES
        return True

    def _run(self) -> None:
        while not self._stopping:
            self.look()
            self._clock.wait_until(self._clock.now_us() + LOOK_US, self._bell)


def own_bytes() -> int:
    """Memory that is this process's alone: neither code nor maps of files. Linux."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def trimmer() -> Trimmer | None:
    """One for this process; None where the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None or not Path("/proc/self/statm").exists():
        return None
    import pyarrow as pa

    def release() -> None:
        trim(0)
        for pool in (pa.mimalloc_memory_pool, pa.default_memory_pool):
            with suppress(NotImplementedError):  # this build has none
                pool().release_unused()

    return Trimmer(own_bytes, release)
