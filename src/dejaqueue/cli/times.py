"""Instants and lengths of time as people type them.

Room: cli. No clock: `now` is an argument.
Holds: everything becomes whole milliseconds, or is refused with what would have been understood.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

from dejaqueue.limits import INSTANT_MS_MAX

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


class Span(click.ParamType[int]):
    """A length of time: 250ms, 10s, 5m, 2h, 1d; a bare number is milliseconds."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Milliseconds."""
        if isinstance(value, int):
            return value
        found = _SPAN.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"a time is like 250ms, 10s, 5m, 2h or 1d, got: {value!r}", param, ctx)
        span_ms = round(float(found[1]) * UNITS_MS[found[2] or "ms"])
        if span_ms > INSTANT_MS_MAX:
            self.fail(f"at most {INSTANT_MS_MAX} ms, got: {value!r}", param, ctx)
        return span_ms


class SignedSpan(Span):
    """A length of time that may be negative: 1h, -30m."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Milliseconds."""
        text = str(value).strip()
        if text.startswith("-"):
            return -super().convert(text[1:], param, ctx)
        return super().convert(value, param, ctx)


class Instant(click.ParamType[int]):
    """An instant: 2026-12-24T18:00:00Z, with its zone, or UTC milliseconds since 1970."""

    name = "instant"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """UTC milliseconds since 1970."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text.isdecimal():
            return self._within(int(text), param, ctx)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"an instant is like 2026-12-24T18:00:00Z, got: {text!r}", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"an instant needs its zone, as {text}Z or {text}+01:00", param, ctx)
        # Microseconds below a millisecond round up: never early.
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return self._within(-(-micros // 1_000), param, ctx)

    def _within(
        self, instant_ms: int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if not 0 <= instant_ms <= INSTANT_MS_MAX:
            self.fail(f"from 0 to {INSTANT_MS_MAX} ms, got: {instant_ms}", param, ctx)
        return instant_ms


def show_instant(instant_ms: int) -> str:
    """An instant as ISO 8601 in UTC, with milliseconds.

    >>> show_instant(1000)
    '1970-01-01T00:00:01.000Z'
    """
    seconds, ms = divmod(instant_ms, 1_000)
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"
