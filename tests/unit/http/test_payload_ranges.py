"""Covers: ranges of a payload as requests ask for them, and the parts that they lie in."""

from __future__ import annotations

import pytest

from dejaqueue.http.payload_ranges import asked_range, slices_of
from dejaqueue.schema.payload_parts import PartList

CONTENT = b"0123456789abcdefghijXYZ"
PARTS = PartList(len(CONTENT), 10, bytes(96))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", CONTENT),
        ("bytes=0-", CONTENT),
        ("bytes=0-0", b"0"),
        ("bytes=9-10", b"9a"),
        ("bytes=5-21", CONTENT[5:22]),
        ("bytes=-3", b"XYZ"),
        ("bytes=-99", CONTENT),
        ("bytes=20-999", b"XYZ"),
        ("bytes=1-2,4-5", CONTENT),
        ("pages=1-2", CONTENT),
        ("bytes=-", CONTENT),
    ],
)
def test_what_is_asked_for_is_found_in_the_parts(header: str, expected: bytes) -> None:
    first, end = asked_range(header, len(CONTENT))
    parts = [CONTENT[start : start + 10] for start in range(0, len(CONTENT), 10)]
    assert b"".join(parts[at][wanted] for at, wanted in slices_of(PARTS, first, end)) == expected


@pytest.mark.parametrize("header", ["bytes=23-", "bytes=7-3", "bytes=-0"])
def test_what_lies_outside_is_no_range(header: str) -> None:
    first, end = asked_range(header, len(CONTENT))
    assert first >= end
