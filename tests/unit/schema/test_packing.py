"""Packing of tags and headers. What is refused before it is in test_checks.py."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.schema import packing
from dejaqueue.schema.messages import HEADERS, TAGS

WORD = st.text(st.characters(exclude_characters="\x1e\x1f", exclude_categories=["Cs"]), max_size=5)
NAME = WORD.filter(bool)


@given(st.lists(st.lists(NAME, max_size=4), min_size=1, max_size=6))
def test_tags_come_back(rows: list[list[str]]) -> None:
    packed = packing.pack_tags(pa.array(rows, TAGS))
    unpacked = packing.unpack_tags(packed).to_pylist()
    assert [row or [] for row in unpacked] == rows


@given(st.lists(st.lists(st.tuples(NAME, WORD), max_size=3), min_size=1, max_size=6))
def test_headers_come_back(rows: list[list[tuple[str, str]]]) -> None:
    packed = packing.pack_headers(pa.array(rows, HEADERS))
    maps = packing.unpack_headers(packed)
    assert [row or [] for row in maps.to_pylist()] == rows


def test_a_slice_packs_as_its_rows() -> None:
    tags = pa.array([["a"], ["b", "c"], ["d"]], TAGS)[1:]
    assert packing.pack_tags(tags).to_pylist() == ["b\x1fc", "d"]


def test_nothing_packs_to_the_empty_text() -> None:
    assert packing.pack_tags(pa.array([[], []], TAGS)).to_pylist() == ["", ""]
    assert packing.is_empty(pa.array(["", None]))
