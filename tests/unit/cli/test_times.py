"""Instants and lengths of time as people type them."""

from __future__ import annotations

import click
import pytest

from dejaqueue.cli.times import Instant, Span, show_instant
from dejaqueue.limits import INSTANT_MS_MAX


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("250ms", 250),
        ("10s", 10_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        (" 7 ms ", 7),
        ("0", 0),
    ],
)
def test_a_length_of_time_is_milliseconds(text: str, span_ms: int) -> None:
    assert Span().convert(text, None, None) == span_ms


@pytest.mark.parametrize(
    "text", ["", "soon", "-5s", "5 weeks", "1e3", f"{INSTANT_MS_MAX + 1}ms", "10"]
)
def test_another_length_of_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"10s|at most"):
        Span().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "instant_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2026-12-24T18:00:00.123Z", 1_798_135_200_123),
        ("1798135200123", 1_798_135_200_123),
        # Never early: what is finer than a millisecond rounds up.
        ("1970-01-01T00:00:00.000001Z", 1),
        ("100000000000", 100_000_000_000),
    ],
)
def test_an_instant_is_utc_milliseconds(text: str, instant_ms: int) -> None:
    assert Instant().convert(text, None, None) == instant_ms


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-12-24T18:00:00", "needs its zone"),
        ("tomorrow", "2026-12-24T18:00:00Z"),
        ("1969-12-31T23:59:59Z", "from 0"),
        (str(INSTANT_MS_MAX + 1), "from 0"),
    ],
)
def test_another_instant_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        Instant().convert(text, None, None)


@pytest.mark.parametrize("instant_ms", [0, 1, 1_798_135_200_123, INSTANT_MS_MAX])
def test_what_is_shown_can_be_typed_again(instant_ms: int) -> None:
    assert Instant().convert(show_instant(instant_ms), None, None) == instant_ms
