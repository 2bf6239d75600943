"""Headers of death: on top of what there was, each once, and off again."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.schema import dead_letters as letters
from dejaqueue.schema.dead_letters import Deaths
from dejaqueue.schema.messages import HEADERS
from dejaqueue.schema.packing import RECORD, UNIT, pack_headers, unpack_headers

texts = st.text(st.characters(exclude_characters=RECORD + UNIT, codec="utf-8"), max_size=6)
names = texts.filter(bool).map(lambda text: text.replace(letters.PREFIX, "x"))
rows_st = st.lists(st.dictionaries(names, texts, max_size=3), min_size=1, max_size=5)


def packed(rows: list[dict[str, str]]) -> pa.StringArray:
    return pack_headers(pa.array([list(row.items()) for row in rows], HEADERS))


def unpacked(headers: pa.StringArray) -> list[dict[str, str]]:
    return [dict(row or ()) for row in unpack_headers(headers).to_pylist()]


def deaths(reasons: list[str], keys: list[str]) -> Deaths:
    count = len(reasons)
    return Deaths(
        pa.array(reasons, pa.utf8()),
        pa.array(["3"] * count),
        "here",
        pa.array([str(number) for number in range(count)]),
        pa.array(["77"] * count),
        pa.array(keys, pa.utf8()),
    )


@given(rows_st, texts, texts)
def test_headers_are_what_they_were_when_the_death_is_taken_off(
    rows: list[dict[str, str]], reason: str, key: str
) -> None:
    headers = packed(rows)
    dead = letters.with_death(headers, deaths([reason] * len(rows), [key] * len(rows)))
    assert letters.without_death(dead).to_pylist() == headers.to_pylist()
    for number, (row, told) in enumerate(zip(rows, unpacked(dead), strict=True)):
        expected = row | {
            letters.REASON: reason,
            letters.ATTEMPTS: "3",
            letters.ORIGIN: "here",
            letters.ORIGIN_ID: str(number),
            letters.DIED_AT: "77",
        }
        assert told == (expected | {letters.KEY: key} if key else expected)
    assert letters.packed_value(dead, letters.KEY).to_pylist() == [key] * len(rows)


def test_who_dies_again_has_one_death_only() -> None:
    first = letters.with_death(packed([{"a": "b"}, {}]), deaths(["one", "one"], ["k", "k"]))
    again = letters.with_death(first, deaths(["two", "two"], ["", ""]))
    for row in unpacked(again):
        assert row[letters.REASON] == "two"
        assert letters.KEY not in row
    assert again.to_pylist()[0].count(letters.REASON) == 1
    assert letters.without_death(again).to_pylist() == packed([{"a": "b"}, {}]).to_pylist()


def test_no_header_is_taken_for_another() -> None:
    headers = packed([{"x-dejaq-dead-key": "no", "dejaq-dead-keys": "no"}, {}])
    assert letters.packed_value(headers, letters.KEY).to_pylist() == ["", ""]
    kept = letters.without_death(packed([{"x-dejaq-dead-key": "kept"}]))
    assert unpacked(kept) == [{"x-dejaq-dead-key": "kept"}]


def test_a_slice_and_nulls_are_columns_like_others() -> None:
    headers = packed([{"a": "1"}, {"b": "2"}, {"c": "3"}]).slice(1)
    dead = letters.with_death(headers, deaths(["r", "r"], ["", ""]))
    assert letters.without_death(dead).to_pylist() == headers.to_pylist()
    assert letters.without_death(pa.array([None, "a"], pa.utf8())).to_pylist() == ["", "a"]


def test_a_key_says_what_died_and_when() -> None:
    keys = letters.letter_keys("here", pa.array(["1", "2"]), pa.array(["10", "20"]))
    assert keys.to_pylist() == ["here:1@10", "here:2@20"]


def test_a_key_is_known_again__by_the_topic_of_its_message() -> None:
    long = "n" * 191
    names = ["a.b", "a.b@sub", "a.b=1-3", "a.b@sub=1-3", "axb", "a.b.dead", long, f"{long}x"]
    keys = pa.concat_arrays(
        [letters.letter_keys(one, pa.array(["7"]), pa.array(["10"])) for one in names]
    )
    others = pa.array(["a.b:7", "a.b:x@1", "", None, "a.b:7@1 "], pa.utf8())
    keys = pa.concat_arrays([keys, others])
    found = letters.ids_in_keys(keys, "a.b").to_pylist()
    assert found == ["7"] * 4 + [None] * (len(keys) - 4)
    assert letters.ids_in_keys(keys, long).to_pylist().index("7") == 6
    assert max(len(one or "") for one in keys.to_pylist()) < 256
