"""Words: at the bounds of their units. The examples are in the functions themselves."""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.console import words


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [(999, "999 ms"), (1_000, "1 s"), (1_500, "1.5 s"), (59_999, "59 s"), (60_000, "1 min"),
     (86_400_000, "1 d"), (400 * 86_400_000, "1 y 35 d"), (-5, "5 ms")],
)  # fmt: skip
def test_a_length_has_its_two_largest_units(length_ms: int, text: str) -> None:
    assert words.length(length_ms) == text


def test_instants_have_their_zone__and_the_last_one_is_no_error() -> None:
    assert words.absolute(limits.INSTANT_MS_MAX).endswith(" UTC")
    assert words.iso(limits.INSTANT_MS_MAX).endswith("Z")
    assert words.absolute(1 << 62).endswith(" ms")
    assert words.iso(1 << 62) == ""


def test_a_line_of_nothing_is_flat() -> None:
    assert words.sparkline([0.0, 0.0]) == "0.0,23.0 100.0,23.0"
    assert words.sparkline([1.0]) == ""
