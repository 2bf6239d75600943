"""Quiet hours: when, by the clock on a person's wall, nothing is sent.

Room: pipelines. numpy over waves.
Holds: what falls into quiet hours waits for their end, and never comes earlier than it would have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.schedule.zones import DAY_MS, Int64s, Zone

_CLOCK = re.compile(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?")


def parse_clock_ms(text: str) -> int:
    """Milliseconds since midnight of 9:00, 09:00 or 09:00:30.

    Raises:
        ValueError: it is no time of day.

    >>> parse_clock_ms("9:30")
    34200000
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a time of day is like 09:00 or 21:30:15, got: {text!r}")
    return 1_000 * (
        3_600 * int(match["hour"]) + 60 * int(match["minute"]) + int(match["second"] or 0)
    )


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From a local time of day up to another one; over midnight if it begins later than it ends.

    Attributes:
        first_ms, last_ms: since midnight; `last_ms` is not quiet any more.
    """

    first_ms: int
    last_ms: int

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """The quiet hours 21:00-08:00.

        Raises:
            ValueError: they are not two times of day, or one and the same.
        """
        first, dash, last = text.partition("-")
        if not dash:
            raise ValueError(f"quiet hours are like 21:00-08:00, got: {text!r}")
        quiet = cls(parse_clock_ms(first), parse_clock_ms(last))
        if quiet.first_ms == quiet.last_ms:
            raise ValueError(f"quiet hours begin and end at different times, got: {text!r}")
        return quiet

    def release_ms(self, zone: Zone, utc_ms: Int64s) -> Int64s:
        """The first instants from these on that are not quiet, in UTC."""
        local_ms = zone.to_local_ms(utc_ms)
        clock_ms = local_ms % DAY_MS
        midnight_ms = local_ms - clock_ms
        if self.first_ms < self.last_ms:
            is_quiet = (clock_ms >= self.first_ms) & (clock_ms < self.last_ms)
            ends_ms = midnight_ms + self.last_ms
        else:
            is_quiet = (clock_ms >= self.first_ms) | (clock_ms < self.last_ms)
            ends_ms = midnight_ms + self.last_ms + np.where(clock_ms < self.last_ms, 0, DAY_MS)
        free_ms = zone.to_utc_ms(ends_ms)
        # Where the clock was set back, the end that is meant may be the second one of its name.
        free_ms = np.where(free_ms < utc_ms, ends_ms - zone.offset_ms(utc_ms), free_ms)
        return np.where(is_quiet, free_ms, utc_ms).astype(np.int64)

    def windows(self, zone: Zone, from_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """Stretches [first, last) of UTC in which sending is allowed, from an instant on.

        Raises:
            BadRequest: none is left before `until_ms`: the campaign would never end.
        """
        at_ms = from_ms
        while at_ms < until_ms:
            at_ms = self._release_one_ms(zone, at_ms)
            end_ms = self._next_quiet_ms(zone, at_ms)
            yield at_ms, end_ms
            at_ms = end_ms
        raise BadRequest("--rate", "one at which the campaign ends within a year", "it does not")

    def _release_one_ms(self, zone: Zone, utc_ms: int) -> int:
        return int(self.release_ms(zone, np.array([utc_ms], dtype=np.int64))[0])

    def _next_quiet_ms(self, zone: Zone, utc_ms: int) -> int:
        """When it is quiet again, from an instant that is not quiet, in UTC."""
        changes_ms = zone.changes_ms[np.searchsorted(zone.changes_ms, utc_ms, side="right") :]
        at_ms = utc_ms
        # The clock runs evenly from one change of it to the next.
        for change_ms in [*changes_ms.tolist(), None]:
            offset_ms = int(zone.offset_ms(np.array([at_ms], dtype=np.int64))[0])
            local_ms = at_ms + offset_ms
            begins_ms = local_ms - local_ms % DAY_MS + self.first_ms
            begins_ms += DAY_MS if begins_ms <= local_ms else 0
            if change_ms is None or begins_ms - offset_ms <= change_ms:
                return begins_ms - offset_ms
            if self._release_one_ms(zone, change_ms) != change_ms:
                return int(change_ms)
            at_ms = change_ms
        raise AssertionError("the last stretch has no end")
