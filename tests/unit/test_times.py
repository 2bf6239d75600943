"""Instants and lengths of time without a command line; more in tests/unit/cli/test_times.py."""

from __future__ import annotations

import re

import pytest

from dejaqueue.times import UNITS_MS, parse_instant_ms, parse_span_ms, show_span


@pytest.mark.parametrize("span_ms", [0, 1, 999, 1_000, 90_000, 3_600_000, 86_400_000, 90_061_001])
def test_a_length_that_is_shown_can_be_typed_again(span_ms: int) -> None:
    assert parse_span_ms(show_span(span_ms)) == span_ms


def test_the_largest_whole_unit_is_shown() -> None:
    assert [show_span(7 * unit_ms) for unit_ms in UNITS_MS.values()] == [
        "7ms", "7s", "7m", "7h", "7d",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "soon", "2026-12-24T18:00"])
def test_what_is_no_instant_says_what_one_is(text: str) -> None:
    with pytest.raises(ValueError, match="instant"):
        parse_instant_ms(text)


@pytest.mark.parametrize("text", ["2030-01-01", "2030-01-01T12:30", "2030-01-01 12:30:15"])
def test_what_is_suggested_is_understood(text: str) -> None:
    with pytest.raises(ValueError, match="needs its zone") as refused:
        parse_instant_ms(text)
    suggested = re.findall(r"(?:as|or) ([-\d].*?)(?= or |$)", str(refused.value))
    assert len(suggested) == 2
    for one in suggested:
        parse_instant_ms(one)
