"""Whole numbers that somebody else wrote as text.

Room: vocabulary; pure.
Holds: what `int` takes and we do not, or raises for, is no number: digits of other scripts, signs,
underscores, spaces, and more digits than are asked for (`int` raises beyond some thousands).
See: errors.py, what is said of a text that is none.
"""

from __future__ import annotations

INT64_DIGITS = 19
"""What the largest number of 64 bits with a sign has."""


def number_of(text: str, digits_max: int = INT64_DIGITS) -> int | None:
    """The number that ASCII digits say; None if the text is anything else, or longer.

    >>> number_of("0042"), number_of(""), number_of("-1"), number_of("1_000"), number_of("٣")
    (42, None, None, None, None)
    >>> number_of("12345", digits_max=4) is None
    True
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > digits_max:
        return None
    return int(text)
