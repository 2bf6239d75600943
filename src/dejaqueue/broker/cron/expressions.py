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

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""What cron's own nicknames stand for. `@reboot` is none of them: a topic has no boot."""
_UNDERSTOOD = (
    "a cron expression of 5 or 6 fields, with names, lists, ranges, steps, L and LW for days of a "
    f"month, FRI#2 and FRIL for days of a week, or one of {', '.join(NICKNAMES)}"
)
_STEPS_MAX = (("second", 59), ("minute", 59), ("hour", 23), ("day", 30), ("month", 11), ("day", 6))
"""The widest step of each field that can be taken even once."""

_SECOND = timedelta(seconds=1)
_ANY = datetime(2000, 1, 1)


class Expression:
    """A cron expression of 5 fields, or of 6 with the seconds first.

    Args:
        text: as people write it; names of days and months, `L`, `#`, `LW` and `NICKNAMES` are
            understood.

    Raises:
        BadRequest: it is none, or says what is not understood here.
    """

    def __init__(self, text: str) -> None:
        self._text = NICKNAMES.get(text.strip().lower(), text)
        try:
            CronSim(self._text, _ANY)
        except (CronSimError, ValueError, AssertionError) as error:
            raise BadRequest("entry.cron", f"{_UNDERSTOOD} ({error})", text) from None
        _check_steps(text, self._text)

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


def _check_steps(text: str, expression: str) -> None:
    """Refuse a step that is never taken: `*/61` fires once an hour, which nobody means by it."""
    fields = expression.split()
    for part, (name, step_max) in zip(fields, _STEPS_MAX[-len(fields) :], strict=True):
        for term in part.split(","):
            _, slash, step = term.partition("/")
            if slash and int(step) > step_max:
                raise BadRequest("entry.cron", f"steps of {name}s up to {step_max}", text)


@lru_cache(maxsize=4_096)
def parse(text: str) -> Expression:
    """The expression of a text, remembered. Raises BadRequest."""
    return Expression(text)
