"""Cron expressions, over local times that know no zone.

Room: broker. The library `cronsim` reads them; nothing else of the project knows it. Its own way
with clock changes is another than rule 17's, so it is only ever given times without a zone.
Holds: both searches are pure; a time is whole seconds.
See: zones.py for what becomes of local times.

>>> parse("30 2 * * *").next_after(datetime(2026, 3, 29))
datetime.datetime(2026, 3, 29, 2, 30)
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from dejaqueue.errors import BadRequest

_SECOND = timedelta(seconds=1)
_ANY = datetime(2000, 1, 1)


class Expression:
    """A cron expression of 5 fields, or of 6 with the seconds first.

    Args:
        text: as people write it; names of days and months, L, # and LW are understood.

    Raises:
        BadRequest: it is none.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            CronSim(text, _ANY)
        except (CronSimError, ValueError, AssertionError) as error:
            limit = f"a cron expression of 5 or 6 fields ({error})"
            raise BadRequest("entry.cron", limit, text) from None

    def next_after(self, local: datetime) -> datetime | None:
        """The first time after `local`; None if there is none in the next 50 years."""
        return self._search(local, reverse=False)

    def last_until(self, local: datetime) -> datetime | None:
        """The last time up to `local`; None if there is none in the last 50 years."""
        return self._search(local + _SECOND, reverse=True)

    def _search(self, local: datetime, *, reverse: bool) -> datetime | None:
        try:
            return next(CronSim(self._text, local, reverse=reverse), None)
        except (OverflowError, ValueError):  # beyond the calendar
            return None


@lru_cache(maxsize=4_096)
def parse(text: str) -> Expression:
    """The expression of a text, remembered. Raises BadRequest."""
    return Expression(text)
