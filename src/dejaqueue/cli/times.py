"""The command line's types of instants and lengths of time.

Room: cli. No clock: `now` is an argument.
Holds: everything becomes whole milliseconds, or is refused with what would have been understood.
See: dejaqueue/times.py, which reads them.
"""

from __future__ import annotations

import click

from dejaqueue.times import UNITS_MS, parse_instant_ms, parse_span_ms, show_instant

__all__ = ["UNITS_MS", "Instant", "SignedSpan", "Span", "show_instant"]


class Span(click.ParamType[int]):
    """A length of time with its unit: 250ms, 10s, 5m, 2h, 1d."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return parse_span_ms(str(value))
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


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
        try:
            return parse_instant_ms(str(value))
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)
