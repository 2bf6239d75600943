"""Covers: what a reader of an object makes of pieces that are gone: replaced, dropped or damaged.

Not covered: real servers, and writers beside the reader (tests/conformance).
"""

from __future__ import annotations

import pytest

from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.records.objects import LOOKS_MAX, READS, read_whole


class Shelf:
    """A name that means other pieces at each look, as long as there are some; then the last."""

    def __init__(self, *marks: str | None, whole: dict[str, list[bytes | None]]) -> None:
        self.marks, self.whole = list(marks), whole
        self.looks = self.reads = 0

    def find(self) -> str | None:
        self.looks += 1
        return self.marks.pop(0) if len(self.marks) > 1 else self.marks[0]

    def read(self, mark: str) -> bytes | None:
        self.reads += 1
        contents = self.whole.get(mark, [None])
        return contents.pop(0) if len(contents) > 1 else contents[0]

    def content(self) -> bytes | None:
        return read_whole("x on a shelf", self.find, self.read)


def test_what_is_whole_is_read_at_once() -> None:
    shelf = Shelf("a", whole={"a": [b"content"]})
    assert (shelf.content(), shelf.looks, shelf.reads) == (b"content", 1, 1)


def test_no_name_is_no_object() -> None:
    assert Shelf(None, whole={}).content() is None


def test_replaced_at_each_look_is_not_damaged() -> None:
    marks = [f"m{number}" for number in range(50)]
    assert Shelf(*marks, whole={"m49": [b"the newest"]}).content() == b"the newest"


def test_dropped_while_it_is_read_is_no_object() -> None:
    assert Shelf("a", None, whole={}).content() is None


def test_a_server_that_errs_once_has_damaged_nothing() -> None:
    assert Shelf("a", whole={"a": [None] * (READS - 1) + [b"content"]}).content() == b"content"


def test_pieces_that_are_still_meant_and_not_whole_are_damage() -> None:
    shelf = Shelf("a", whole={})
    with pytest.raises(JournalDamaged, match="object x on a shelf: not what was stored"):
        shelf.content()
    assert shelf.reads == READS


def test_replaced_for_ever_ends() -> None:
    shelf = Shelf(*(f"m{number}" for number in range(2 * LOOKS_MAX)), whole={})
    with pytest.raises(Unavailable, match="replaced 1000 times while it was read"):
        shelf.content()
