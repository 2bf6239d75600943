"""How long a thread may keep the interpreter while a crowd of others waits for it.

Room: access. Counts threads; knows neither streams nor keys.
Holds: the switch interval of the process is what it was before whenever no crowd waits.
See: quotas.py, whose openings tell when a crowd waits.

A thread that waits for the interpreter wakes once in each switch interval and asks for it. The
server's interval is 0.5 ms, so that due messages do not wait behind a thread that computes. When a
client drops 1,500 streams at once, though, 1,500 threads wake every 0.5 ms: they use up the
processors, fight for the one mutex that the interpreter's holder needs to hand it on, and nobody
gets anything done. Measured with 1,500 streams dropped again and again on two busy cores: the
longest probe took 1.8 to 3.5 s at 0.5 ms, 0.9 s at 50 ms.
"""

from __future__ import annotations

import sys
import threading

CROWD = 16
"""Threads that wait make a crowd; fewer do not cost a tenth of a processor by waking."""
CALM = 4
"""So few are no crowd any more. Below CROWD, so that the interval does not flap."""
CROWDED_SECONDS = 0.05
"""The switch interval in a crowd. Threads that wait for a lock or a socket hand over at once, and
nearly all do: the interval bounds only those that compute."""


class Crowding:
    """A `with` block around each wait that many threads may be in at once."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting = 0
        self._calm_seconds: float | None = None

    def __enter__(self) -> None:
        """One thread more waits."""
        with self._mutex:
            self._waiting += 1
            if self._waiting >= CROWD and self._calm_seconds is None:
                self._calm_seconds = sys.getswitchinterval()
                sys.setswitchinterval(max(CROWDED_SECONDS, self._calm_seconds))

    def __exit__(self, *_: object) -> None:
        """It waits no longer."""
        with self._mutex:
            self._waiting -= 1
            if self._waiting <= CALM and self._calm_seconds is not None:
                sys.setswitchinterval(self._calm_seconds)
                self._calm_seconds = None


CROWDING = Crowding()
"""Of this process, to which the interpreter and its switch interval belong."""
