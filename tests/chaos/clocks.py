"""The clock of each broker: set by libfaketime, and known here as well as the broker knows it.

Only the wall clock is moved, by an offset that is read from a file at each look. A broker follows
it by small steps, stands still where it goes back a little, and believes a jump only after a grace
time (rule 16); a new process believes what it finds. So what a broker's clock may have shown at an
instant, and when it may first have shown a time, can be said here.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from dejaqueue.clock import GRACE_US, JUMP_US, SystemClock

CLOCK = SystemClock()
HOUR_US = 3_600_000_000
TEN_YEARS_US = 10 * 365 * 24 * HOUR_US
_FOLDERS = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime")


def library() -> str:
    """Path of libfaketime for programs with threads; "" = it is not installed."""
    for pattern in _FOLDERS:
        for path in sorted(Path("/").glob(f"{pattern[1:]}/libfaketimeMT.so.1")):
            return str(path)
    return ""


@dataclass(slots=True)
class _Stretch:
    """From an instant on, or so much later, the broker's clock is off by so much; a new process may
    have begun."""

    from_us: int
    offset_us: int
    is_new: bool = False
    later_us: int = 0


@dataclass
class BrokerClock:
    """The clock of one broker.

    Attributes:
        path: of the file that its process reads.
    """

    path: Path
    offset_us: int = 0
    _stretches: list[_Stretch] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._stretches.append(_Stretch(0, 0, is_new=True))
        self._write()

    def environment(self) -> dict[str, str]:
        """For its process."""
        found = library()
        if not found:
            return {}
        return {
            "LD_PRELOAD": found,
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def _write(self) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(f"{self.offset_us / 1e6:+.6f}\n")
        os.replace(beside, self.path)

    def set(self, offset_us: int) -> None:
        """From now on it is off by so much."""
        with self._guard:
            before_us = CLOCK.now_us()
            self.offset_us = offset_us
            self._write()
            self._forget_planned(before_us)
            believed_us = self._stretches[-1].offset_us
            if abs(offset_us - believed_us) <= JUMP_US:  # in between it may have shown either
                self._stretches.append(_Stretch(before_us, offset_us, later_us=_WRITE_US))
            else:
                planned = _Stretch(before_us + GRACE_US, offset_us, later_us=_BELIEF_US)
                self._stretches.append(planned)

    def _forget_planned(self, now_us: int) -> None:
        """A jump that was not believed yet is over, or another one."""
        while self._stretches[-1].from_us > now_us:
            self._stretches.pop()

    def restarted(self) -> None:
        """Its process is a new one, which does not know what the last one has shown."""
        with self._guard:
            now_us = CLOCK.now_us()
            self._forget_planned(now_us)
            self._stretches.append(_Stretch(now_us, self.offset_us, is_new=True))

    def highest_us(self, at_us: int, since_us: int | None = None) -> int:
        """The most that its process may show at an instant, by the true clock.

        Args:
            since_us: and what the processes since then have shown; at that instant if not given.
        """
        return self._highest_us(at_us, at_us if since_us is None else since_us)

    def highest_ever_us(self, at_us: int) -> int:
        """The most that any of its processes may have shown by then."""
        return self._highest_us(at_us, 0)

    def _highest_us(self, at_us: int, since_us: int) -> int:
        with self._guard:
            floor_us, offset_us, recent_us = 0, 0, 0
            for stretch in self._stretches:
                if stretch.from_us > at_us:
                    break
                # It takes a moment, in which the former offset may still have been shown.
                floor_us = max(floor_us, stretch.from_us + offset_us + stretch.later_us)
                if stretch.from_us > at_us - _RECENT_US:
                    # A process that was stopped meanwhile has not followed, and does so later.
                    recent_us = max(recent_us, at_us + offset_us)
                if stretch.is_new and stretch.from_us <= since_us:
                    floor_us = recent_us = 0
                offset_us = stretch.offset_us
            return max(floor_us, recent_us, at_us + offset_us)

    def first_us(self, shown_us: int, until_us: int) -> int:
        """The earliest instant at which it may have shown this, not after `until_us`."""
        with self._guard:
            for place, stretch in enumerate(self._stretches):
                last = place + 1 == len(self._stretches)
                end_us = until_us
                if not last:
                    after = self._stretches[place + 1]
                    end_us = after.from_us + after.later_us
                at_us = shown_us - stretch.offset_us
                if at_us <= end_us:
                    return min(max(at_us, stretch.from_us), until_us)
            return until_us


_WRITE_US = 50_000
"""A file that is replaced is read by everybody within this."""
_BELIEF_US = 5_000_000
"""Who has to believe a jump has done so within this."""
_RECENT_US = GRACE_US + _BELIEF_US
