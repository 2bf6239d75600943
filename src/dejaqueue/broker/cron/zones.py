"""Local times to instants and back, with what a clock change does to them said aloud.

Room: broker. Over the standard library's zoneinfo; data of the system, or of the package `tzdata`.
Holds: `instant` never falls as local times rise: a local time that is left out stands at the end
of the gap, one that comes twice at its first coming (rule 17).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dejaqueue.errors import BadRequest

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)


class Zone:
    """A time zone by its IANA name. Raises BadRequest."""

    def __init__(self, name: str) -> None:
        try:
            self._zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            limit = "an IANA time zone as Europe/Berlin"
            raise BadRequest("entry.zone", limit, name) from None

    def latest_local(self, instant_ms: int) -> datetime:
        """The latest local time, in whole seconds, that stands at this instant or before.

        That is what clocks show, but where an hour is repeated its end: all of it has been before.
        """
        shown = datetime.fromtimestamp(instant_ms // 1_000, self._zone)
        local = shown.replace(tzinfo=None, fold=0)
        if not shown.fold:
            return local
        before, after = self._offsets(local)
        low, high = 0, int((before - after).total_seconds())
        while high - low > 1:  # low is repeated, high is not
            middle = (low + high) // 2
            before, after = self._offsets(local + middle * _SECOND)
            low, high = (middle, high) if before > after else (low, middle)
        return local + low * _SECOND

    def instant(self, local: datetime) -> tuple[int, bool]:
        """Where a local time stands, UTC milliseconds, and whether it was left out."""
        before, after = self._offsets(local)
        since = local - _EPOCH
        if before >= after:
            return _ms(since - before), False
        # In a gap: clocks jump somewhere between these two instants.
        low, high = _ms(since - after) // 1_000, _ms(since - before) // 1_000
        while high - low > 1:
            middle = (low + high) // 2
            jumped = self.offset(middle * 1_000) != before
            low, high = (low, middle) if jumped else (middle, high)
        return high * 1_000, True

    def offset(self, instant_ms: int) -> timedelta:
        """How far local time is ahead of UTC."""
        offset = datetime.fromtimestamp(instant_ms // 1_000, self._zone).utcoffset()
        assert offset is not None
        return offset

    def _offsets(self, local: datetime) -> tuple[timedelta, timedelta]:
        """The offset of a local time before and after a clock change, if there is one then."""
        aware = local.replace(tzinfo=self._zone)
        before, after = aware.utcoffset(), aware.replace(fold=1).utcoffset()
        assert before is not None
        assert after is not None
        return before, after


def _ms(since: timedelta) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000


@lru_cache(maxsize=1_024)
def zone_of(name: str) -> Zone:
    """The zone of a name, remembered. Raises BadRequest."""
    return Zone(name)
