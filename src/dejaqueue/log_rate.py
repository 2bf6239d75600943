"""How many lines of one kind a log takes in a time: whoever can cause a line can cause a million.

Room: vocabulary. No clock of its own and no output: the logs (logs.py) and the audit log
(access/audit.py) ask it about each line that somebody outside can cause.
Holds: of one kind at most so many lines in each time, and of all kinds together at most `kinds_max`
times as many; what was left out is counted, and said with the next line of its kind.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable

KINDS_MAX = 1_000
"""Kinds that are counted each for itself; those beyond count as one."""


class LogRate:
    """Says which lines are written.

    Args:
        lines_max: of one kind, in each time.
        seconds: that time; it begins with the first line.

    >>> rate = LogRate(2, 10)
    >>> [rate.admit("slow disk", now_s) for now_s in (0, 1, 2, 3, 10)]
    [0, 0, None, None, 2]
    """

    def __init__(self, lines_max: int, seconds: float, kinds_max: int = KINDS_MAX) -> None:
        self._lines_max = lines_max
        self._seconds = seconds
        self._kinds_max = kinds_max
        self._mutex = threading.Lock()
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def admit(self, kind: Hashable, now_s: float) -> int | None:
        """How many lines of this kind were left out before this one; None = it is left out, too."""
        with self._mutex:
            if kind not in self._seen and len(self._seen) >= self._kinds_max:
                kind = self._make_room(kind, now_s)
            began_s, count = self._seen.get(kind, (now_s, 0))
            left_out = 0
            if now_s - began_s >= self._seconds:
                left_out = max(0, count - self._lines_max)
                began_s, count = now_s, 0
            self._seen[kind] = began_s, count + 1
        return left_out if count < self._lines_max else None

    def _make_room(self, kind: Hashable, now_s: float) -> Hashable:
        """Forget what was long ago and told whole; the kind, or the one for those beyond."""
        for known, (began_s, count) in list(self._seen.items()):
            if now_s - began_s >= self._seconds and count <= self._lines_max:
                del self._seen[known]
        return kind if len(self._seen) < self._kinds_max else None
