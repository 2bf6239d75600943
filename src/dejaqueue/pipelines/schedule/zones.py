"""Local times of a zone as UTC, a column at a time.

Room: pipelines. numpy and the time zone database of this Python (the package tzdata), which is the
one that cron entries use; not Java's.
Holds: a local time that does not exist is as long after the gap's beginning as it says, so an hour
later by the clock on the wall (02:30 is 03:30); one that exists twice is the first of the two. This
is what RFC 5545 says of calendars, and what Java and Python do when nothing else is asked of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from dejaqueue.errors import BadRequest

Int64s = npt.NDArray[np.int64]

DAY_MS = 86_400_000
HORIZON_MS_MAX = 20 * 366 * DAY_MS
"""A table of offsets covers this at most: whoever asks for more has mistaken a column."""


@dataclass(frozen=True)
class Zone:
    """The offsets of a zone over a stretch of time.

    Attributes:
        name: IANA name.
        changes_ms: UTC instants at which the offset changes, int64 array, shape (n,).
        offsets_ms: local time less UTC before the first change and after each, shape (n + 1,).
    """

    name: str
    changes_ms: Int64s
    offsets_ms: Int64s

    @property
    def rules(self) -> tuple[bytes, bytes]:
        """Equal for zones whose clocks show the same, all the time that is covered."""
        return self.changes_ms.tobytes(), self.offsets_ms.tobytes()

    def to_utc_ms(self, local_ms: Int64s) -> Int64s:
        """UTC of local times, both in milliseconds since 1970-01-01T00:00 of their clock."""
        # From here on a local time has the next offset: after a gap, or after a repeated stretch.
        turns_ms = self.changes_ms + np.maximum(self.offsets_ms[:-1], self.offsets_ms[1:])
        return local_ms - self.offsets_ms[np.searchsorted(turns_ms, local_ms, side="right")]

    def to_local_ms(self, utc_ms: Int64s) -> Int64s:
        """What the clock on the wall shows at UTC instants."""
        return utc_ms + self.offset_ms(utc_ms)

    def offset_ms(self, utc_ms: Int64s) -> Int64s:
        """Local time less UTC, at UTC instants."""
        return self.offsets_ms[np.searchsorted(self.changes_ms, utc_ms, side="right")]


def load_zone(name: str, first_ms: int, last_ms: int) -> Zone:
    """The zone of this IANA name, right for all times from `first_ms` to `last_ms`, local or UTC.

    Raises:
        KeyError: there is no such zone. BadRequest: the stretch is longer than twenty years.
    """
    if last_ms - first_ms > HORIZON_MS_MAX:
        shown = f"{datetime.fromtimestamp(first_ms / 1_000, tz=UTC):%Y-%m-%d} to {last_ms} ms"
        raise BadRequest("send times", "within twenty years of each other", shown)
    known = _zone_info(name)
    # A clock differs from UTC by less than a day. Whole days, so that the cache is of use.
    first_day, last_day = first_ms // DAY_MS - 1, last_ms // DAY_MS + 2
    return _load(known, name, first_day, last_day)


def _zone_info(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise KeyError(name) from None


@lru_cache(maxsize=1_024)
def _load(known: ZoneInfo, name: str, first_day: int, last_day: int) -> Zone:
    def offset_s(instant_s: int) -> int:
        moment = datetime.fromtimestamp(instant_s, tz=UTC).astimezone(known)
        difference = moment.utcoffset()
        assert difference is not None
        return difference.days * 86_400 + difference.seconds

    changes: list[int] = []
    offsets = [offset_s(first_day * 86_400)]
    for day in range(first_day, last_day):
        low, high = day * 86_400, (day + 1) * 86_400
        after = offset_s(high)
        if after == offsets[-1]:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset_s(middle) == offsets[-1] else (low, middle)
        changes.append(high)
        offsets.append(after)
    return Zone(
        name,
        np.array(changes, dtype=np.int64) * 1_000,
        np.array(offsets, dtype=np.int64) * 1_000,
    )
