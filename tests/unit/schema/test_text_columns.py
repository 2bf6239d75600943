"""Covers: bytes and offsets of columns of texts, whole and in part."""

from __future__ import annotations

import pyarrow as pa

from dejaqueue.schema.text_columns import text_bytes, text_offsets


def test_a_part_of_a_column_has_its_own_bytes() -> None:
    whole = pa.array(["a", "bcd", "", "ef"])
    part = whole.slice(1, 2)
    assert (text_bytes(whole), text_bytes(part)) == (6, 3)
    assert text_offsets(part).tolist() == [1, 4, 4]
    assert text_offsets(whole.slice(0, 0)).tolist() == [0]
