"""What the operating system has, and what is done where it lacks it.

Room: vocabulary; imports the errors alone. Clients, tasks and the command ask here; a broker uses
Linux directly, and who would load its rooms elsewhere is refused here.
Holds: everything but the broker can be imported on Windows and on macOS.
See: docs/adr/0073-brokers-on-linux-clients-anywhere.md; tests/cli/test_other_systems.py.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from dejaqueue.errors import Refused

_NAMES: Final = {"darwin": "macOS", "win32": "Windows"}
"""As people call them; others go by Python's name."""


def runs_brokers() -> bool:
    """Whether a broker may run here."""
    return sys.platform == "linux"


def refuse_broker(*_: object, **__: object) -> NoReturn:
    """Say that no broker runs here, and what to do instead. Stands in for what would start one.

    Raises:
        Refused: always.
    """
    raise Refused(
        f"brokers run on Linux only, got: {_NAMES.get(sys.platform, sys.platform)}; run one in a "
        "container (docs/guides/containers.md), and use it from here by its URL, with "
        "dejaqueue.Client or the command dejaq"
    )


# --- time ---------------------------------------------------------------------------------------


def _elapsed() -> Callable[[], int]:
    if hasattr(time, "clock_gettime_ns"):
        # Counts while the machine sleeps, where there is such a clock: waking up is no jump then.
        number = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return partial(time.clock_gettime_ns, number)
    return time.perf_counter_ns  # of Windows: its monotonic clock moves in steps of 16 ms


elapsed_ns = _elapsed()
"""Nanoseconds since some instant, whatever happens to the wall clock."""

_TIMEX_BYTES = 512
"""More than any machine's `struct timex` takes. Zeroes ask, and set nothing."""
_adjtimex: Any = getattr(ctypes.CDLL(None), "adjtimex", None) if runs_brokers() else None


def clock_state() -> int:
    """What the kernel says of what keeps its clock, as `adjtimex` answers it (see its man page).

    Returns:
        -1 = it does not say: another system than Linux, or a container that may not ask.
    """
    return -1 if _adjtimex is None else int(_adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))


# --- this process -------------------------------------------------------------------------------


def after_fork(call: Callable[[], object]) -> None:
    """Have each process that is forked from this one call this first, where processes fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def resident_bytes() -> int | None:
    """Memory that this process has; None where the system does not tell a file of it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * int(os.sysconf("SC_PAGE_SIZE"))


class WakeFile:
    """A file that is readable when it was rung, for a loop that waits for files.

    One descriptor by `eventfd`, or a pipe where there is none.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._reads = self._writes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reads, self._writes = os.pipe()
            os.set_blocking(self._reads, False)
            os.set_blocking(self._writes, False)

    def fileno(self) -> int:
        """What the loop waits for; -1 = closed."""
        return self._reads

    def ring(self) -> None:
        """Make it readable; one that is closed hears nothing."""
        if self._writes < 0:
            return
        with suppress(BlockingIOError):  # the pipe is full: it is readable
            os.write(self._writes, (1).to_bytes(8, sys.byteorder))

    def hush(self) -> bool:
        """Make it unreadable until it is rung again; False if it was not rung."""
        try:
            return bool(os.read(self._reads, 4_096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close it; twice is fine."""
        reads, writes, self._reads, self._writes = self._reads, self._writes, -1, -1
        for descriptor in {reads, writes}:
            if descriptor >= 0:
                os.close(descriptor)
