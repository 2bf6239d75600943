"""What somebody else wrote as a number is one of ASCII digits, and of no more than asked for."""

from __future__ import annotations

import pytest

from dejaqueue.digits import number_of


@pytest.mark.parametrize("text", ["0", "7", "0042", "9" * 19])
def test_ascii_digits_are_the_number(text: str) -> None:
    assert number_of(text) == int(text)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "-1", "+1", "1_0", "1.0", "0x1", "²", "٣", "１", "one", "1\n", "\0"]
)
def test_anything_else_is_none(text: str) -> None:
    assert number_of(text) is None


def test_more_digits_than_are_asked_for_are_none() -> None:
    assert number_of("1234", digits_max=4) == 1234
    assert number_of("01234", digits_max=4) is None
    assert number_of("9" * 20) is None
    assert number_of("9" * 100_000) is None
