"""Instants and lengths of time as people type them.

Room: vocabulary. No clock: `now` is an argument.
Holds: everything becomes whole milliseconds, or is refused with what would have been understood.
See: cli/times.py for the command line's types of them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dejaqueue.limits import INSTANT_MS_MAX, INSTANT_MS_MIN

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


def parse_span_ms(text: str) -> int:
    """A length of time in milliseconds, from a number with its unit: 250ms, 10s, 5m, 2h, 1d.

    A number alone is refused, but for 0: in Python `delay=10` is ten seconds, elsewhere here a
    number is milliseconds, and the difference shows a thousand times too late or too early.

    Raises:
        ValueError: it is not; says what it should be.

    >>> parse_span_ms("1.5h")
    5400000
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a time is like 250ms, 10s, 5m, 2h or 1d, got: {text!r}")
    number, unit = float(match[1]), match[2]
    if unit is None and number:
        raise ValueError(f"a time needs its unit, as {match[1]}s or {match[1]}ms, got: {text!r}")
    span_ms = round(number * UNITS_MS[unit or "ms"])
    if span_ms > INSTANT_MS_MAX:
        raise ValueError(f"at most {INSTANT_MS_MAX} ms, got: {text!r}")
    return span_ms


def parse_instant_ms(text: str) -> int:
    """UTC milliseconds of 2026-12-24T18:00:00Z, with any zone, or of a number of them.

    Raises:
        ValueError: it is no instant; says what it should be.
    """
    text = text.strip()
    if text.isdecimal():
        instant_ms = _within(int(text))
        if 0 < instant_ms < INSTANT_MS_MIN:
            raise ValueError(
                f"an instant in milliseconds is at least {INSTANT_MS_MIN}, got: {instant_ms} "
                "(this looks like seconds: multiply by 1000)"
            )
        return instant_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"an instant is like 2026-12-24T18:00:00Z, got: {text!r}") from None
    if moment.tzinfo is None:
        whole = text if len(text) > len("2026-12-24") else f"{text}T00:00"
        raise ValueError(f"an instant needs its zone, as {whole}Z or {whole}+01:00")
    # Microseconds below a millisecond round up: never early.
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return _within(-(-micros // 1_000))


def _within(instant_ms: int) -> int:
    if not 0 <= instant_ms <= INSTANT_MS_MAX:
        raise ValueError(f"from 0 to {INSTANT_MS_MAX} ms, got: {instant_ms}")
    return instant_ms


def show_instant(instant_ms: int) -> str:
    """An instant as ISO 8601 in UTC, with milliseconds.

    >>> show_instant(1000)
    '1970-01-01T00:00:01.000Z'
    """
    seconds, ms = divmod(instant_ms, 1_000)
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def show_span(span_ms: int) -> str:
    """A length of time as `parse_span_ms` reads it, in its largest whole unit.

    >>> show_span(5_400_000), show_span(86_400_000)
    ('90m', '1d')
    """
    for name, unit_ms in reversed(UNITS_MS.items()):
        if span_ms % unit_ms == 0 and span_ms >= unit_ms:
            return f"{span_ms // unit_ms}{name}"
    return f"{span_ms}ms"
