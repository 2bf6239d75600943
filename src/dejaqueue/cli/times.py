"""The command line's types of instants and lengths of time.

Room: cli. Times that are ago are by this machine's clock.
Holds: everything becomes whole milliseconds, or is refused with what would have been understood.
See: dejaqueue/times.py, which reads them.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from dejaqueue.clock import SystemClock
from dejaqueue.times import UNITS_MS, parse_instant_ms, parse_span_ms, show_instant

__all__ = ["UNITS_MS", "Instant", "Place", "SignedSpan", "Span", "show_instant"]


class _TimeOption(click.ParamType[int]):
    """A text that `read` makes milliseconds of; a number is taken as it is.

    Args:
        read: raises ValueError with what would have been understood.
    """

    def __init__(self, name: str, read: Callable[[str], int]) -> None:
        self.name, self._read = name, read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return self._read(str(value))
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


class Span(_TimeOption):
    """A length of time with its unit: 250ms, 10s, 5m, 2h, 1d."""

    def __init__(self) -> None:
        super().__init__("time", parse_span_ms)


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


class Instant(_TimeOption):
    """An instant: 2026-12-24T18:00:00Z, with its zone, or UTC milliseconds since 1970."""

    def __init__(self) -> None:
        super().__init__("instant", parse_instant_ms)


class Place(click.ParamType[str | int]):
    """Where a subscription begins, or goes to: a word, a time that is ago, or an instant.

    Args:
        words: that are taken as they are.
    """

    name = "place"

    def __init__(self, *words: str) -> None:
        self._words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What help shows."""
        return f"[{'|'.join(self._words)}|2h-ago|INSTANT]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        """The word, or milliseconds."""
        text = str(value)
        if text in self._words:
            return text
        if text.endswith("-ago"):
            return SystemClock().utc_ms() - Span().convert(text.removesuffix("-ago"), param, ctx)
        return Instant().convert(value, param, ctx)
