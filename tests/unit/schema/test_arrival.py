"""Arrow from outside: what is not what it says is refused by name, and sizes are known before.

Covered: every layout that a stream may have, texts within dictionaries, lists and maps, sizes of
what is unpacked. Not covered: at a broker (tests/hostile).
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.schema.arrival import check_arrival, check_layout, check_unpacked
from tests.hostile.arrow_bytes import messages_of, replaced, stream_of

WORDS = pa.array(["abcde", "fghij"])
LISTS = pa.array([["abcde", "fghij"], ["klm"]])
MAPS = pa.array([[("abcde", "fghij")], [("k", "lm")]], pa.map_(pa.utf8(), pa.utf8()))
VIEWS = pa.array(["abcdefghijklmnopqrst", "b"], pa.string_view())
PLACES = pa.array([0, 1, 0, 0, 1], pa.int32())
ENCODED = pa.DictionaryArray.from_arrays(PLACES, WORDS)
LIST_OF_ENCODED = pa.ListArray.from_arrays(pa.array([0, 2, 5], pa.int32()), ENCODED)
UTF8 = b"abcde", b"ab\xffde"


def i32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def i64(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


def view(size: int, text: bytes) -> bytes:
    return struct.pack("<i", size) + text


LAYOUTS = {
    "beyond": (WORDS, i32(0, 5, 10), i32(0, 5, 1_000)),
    "inner_beyond": (WORDS, i32(0, 5, 10), i32(0, 50, 10)),
    "before": (WORDS, i32(0, 5, 10), i32(-50, 5, 10)),
    "back": (WORDS, i32(0, 5, 10), i32(0, 10, 5)),
    "large": (WORDS.cast(pa.large_utf8()), i64(0, 5, 10), i64(0, 5, 1 << 40)),
    "list_beyond": (LISTS, i32(0, 2, 3), i32(0, 2, 300)),
    "list_back": (LISTS, i32(0, 2, 3), i32(0, 9, 3)),
    "list_text": (LISTS, i32(0, 5, 10, 13), i32(0, 5, 10, 1_300)),
    "map_key": (MAPS, i32(0, 5, 6), i32(0, 5, 600)),
    "map_item": (MAPS, i32(0, 5, 7), i32(0, 500, 7)),
    "place": (ENCODED, i32(0, 1, 0, 0, 1), i32(0, 1, 7, 0, 1)),
    "place_before": (ENCODED, i32(0, 1, 0, 0, 1), i32(0, 1, -7, 0, 1)),
    "dictionary": (ENCODED, i32(0, 5, 10), i32(0, 5, 1_000)),
    "dictionary_in_list": (LIST_OF_ENCODED, i32(0, 5, 10), i32(0, 5, 1_000)),
    "view": (VIEWS, view(20, b"abcd"), view(2_000, b"abcd")),
    "view_before": (VIEWS, view(20, b"abcd"), view(-20, b"abcd")),
}
TEXTS = {
    "text": WORDS,
    "large": WORDS.cast(pa.large_utf8()),
    "list": LISTS,
    "map": MAPS,
    "dictionary": ENCODED,
    "dictionary_in_list": LIST_OF_ENCODED,
}


def arrived(column: pa.Array, old: bytes, new: bytes) -> pa.RecordBatch:
    """What a reader makes of the bytes, which looks at nothing."""
    messages = replaced(messages_of(pa.record_batch({"x": column})), old, new)
    return pa.ipc.open_stream(stream_of(messages)).read_next_batch()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_lies_is_refused_by_name(layout: str) -> None:
    batch = arrived(*LAYOUTS[layout])
    for check in (check_arrival, check_layout):
        with pytest.raises(BadRequest, match=r"^column x: valid Arrow, got: "):
            check(batch)


@pytest.mark.parametrize("place", TEXTS)
def test_a_text_that_is_no_utf8_is_refused(place: str) -> None:
    batch = arrived(TEXTS[place], *UTF8)
    with pytest.raises(BadRequest, match=r"^column x: .*UTF8"):
        check_arrival(batch)


@pytest.mark.parametrize("place", ["text", "list", "map"])
def test_who_reads_from_a_broker_judges_texts_row_by_row(place: str) -> None:
    batch = arrived(TEXTS[place], *UTF8)
    assert check_layout(batch) is batch
    table = pa.Table.from_batches([batch])
    assert check_layout(table) is table


def test_a_count_of_nulls_that_is_not_true_is_refused() -> None:
    messages = messages_of(pa.record_batch({"x": pa.array([1, None, 3])}))
    [node] = messages[-1].nodes()
    struct.pack_into("<qq", messages[-1].metadata, node, 3, 3)
    with pytest.raises(BadRequest, match="column x: .*null"):
        check_arrival(pa.ipc.open_stream(stream_of(messages)).read_next_batch())


def keys_made_null(good: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it is read if the schema's byte that says "text" of the keys says "null"."""
    text, null = 5, 1
    for place, byte in enumerate(messages_of(good)[0].metadata):
        if byte != text:
            continue
        messages = messages_of(good)
        messages[0].metadata[place] = null
        try:
            batch = pa.ipc.open_stream(stream_of(messages)).read_next_batch()
        except OSError:
            continue
        if pa.types.is_null(batch.schema.field("headers").type.key_type):
            return batch
    raise AssertionError("no byte makes the keys null")


def test_a_map_whose_keys_became_nulls_is_refused() -> None:
    """It passed every check, and a view of it ended the process."""
    texts = pa.map_(pa.string(), pa.string())
    good = pa.record_batch({"headers": pa.array([[("a", "b")], [("c", "d")]], texts)})
    batch = keys_made_null(good)
    for check in (check_arrival, check_layout):
        with pytest.raises(BadRequest, match="column headers: valid Arrow"):
            check(batch)


def test_what_is_good_is_returned_as_it_is() -> None:
    columns = {"w": WORDS, "l": LISTS, "m": MAPS, "v": VIEWS, "d": ENCODED.slice(0, 2)}
    batch = pa.record_batch(columns)
    assert check_arrival(batch) is batch
    assert check_layout(batch) is batch
    check_unpacked(batch)


def many(text: str) -> dict[str, pa.Array]:
    """Columns that name a text of a MiB 200 times."""
    places = pa.array([0, None] * 200, pa.int8())
    offsets = pa.array(np.arange(0, 401, 2), pa.int32())
    encoded = pa.DictionaryArray.from_arrays(places, pa.array([text, "unused" * 9]))
    _, one, content = pa.array([text], pa.string_view()).buffers()
    same = pa.py_buffer(one.to_pybytes()[:16] * 200)
    views = pa.Array.from_buffers(pa.string_view(), 200, [None, same, content])
    of_views = pa.DictionaryArray.from_arrays(pa.array(range(200)), views)
    large = pa.DictionaryArray.from_arrays(places, pa.array([text], pa.large_utf8()))
    return {
        "dictionary": encoded,
        "dictionary_slice": encoded.slice(0, 399),
        "dictionary_of_large": large,
        "views": views,
        "dictionary_of_views": of_views,
        "list": pa.ListArray.from_arrays(offsets, encoded),
        "large_list": pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), encoded),
        "map": pa.MapArray.from_arrays(offsets, pa.array(["n"] * 400), encoded),
    }


@pytest.mark.parametrize("column", many("x" * 20))
def test_what_is_named_often_counts_as_often(column: str) -> None:
    batch = pa.record_batch({"x": many("x" * (1 << 20))[column]})
    check_arrival(batch)
    with pytest.raises(BadRequest, match="once dictionaries and views are unpacked") as caught:
        check_unpacked(batch)
    found = int(str(caught.value).rpartition(" ")[2])
    assert 200 << 20 <= found < (200 << 20) + 10_000
    check_unpacked(pa.record_batch({"x": many("x" * 100)[column]}))


def test_nothing_is_multiplied_beyond_what_numbers_hold() -> None:
    rows = 1 << 20
    values = pa.array([b"x" * (64 << 20)], pa.large_binary())
    places = pa.array(np.zeros(rows, np.int32))
    batch = pa.record_batch({"x": pa.DictionaryArray.from_arrays(places, values)})
    with pytest.raises(BadRequest, match=f"got: {rows * (64 << 20)}"):
        check_unpacked(batch)


def test_lists_of_nothing_are_counted_too() -> None:
    offsets = pa.array([0, limits.BATCH_BYTES_MAX], pa.int32())
    nothing = pa.nulls(limits.BATCH_BYTES_MAX)
    with pytest.raises(BadRequest, match="unpacked"):
        check_unpacked(pa.record_batch({"x": pa.ListArray.from_arrays(offsets, nothing)}))
