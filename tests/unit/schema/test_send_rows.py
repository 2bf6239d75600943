"""Rows that are no columns yet: refused as columns are, and the same once they are columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_send
from dejaqueue.schema.messages import HEADERS, TAGS
from dejaqueue.schema.row_fields import Fields
from dejaqueue.schema.send_rows import SendRows, check_rows, joined_columns

NOW_MS = 1_700_000_000_000
TOPIC = Topic("t", max_payload_bytes=10, max_delay_ms=1_000)


@pytest.mark.parametrize(
    ("payloads", "dues_ms"),
    [
        ([], None),
        ([b"a", b"x" * 11], None),
        ([b"a"], [1]),
        ([b"a", b"b"], [NOW_MS, -1]),
        ([b"a"], [limits.INSTANT_MS_MAX + 1]),
        ([b"a", b"b"], [NOW_MS, NOW_MS + 1_001]),
    ],
)
def test_what_is_wrong_is_said_as_of_a_batch(
    payloads: list[bytes], dues_ms: list[int] | None
) -> None:
    columns = {"payload": pa.array(payloads, pa.binary())}
    if dues_ms is not None:
        columns["due"] = pa.array(dues_ms, pa.int64())
    with pytest.raises(BadRequest) as of_batch:
        check_send(pa.record_batch(columns), TOPIC, NOW_MS)
    with pytest.raises(BadRequest) as of_rows:
        check_rows(payloads, dues_ms, TOPIC, NOW_MS)
    assert str(of_rows.value) == str(of_batch.value)


def test_as_columns_they_are_those_of_a_batch() -> None:
    dues_ms = [0, NOW_MS, NOW_MS + 1_000]
    rows = check_rows([b"a", b"", b"ccc"], dues_ms, TOPIC, NOW_MS)
    batch = pa.record_batch({"payload": [b"a", b"", b"ccc"], "due": pa.array(dues_ms, pa.int64())})
    expected, found = check_send(batch, TOPIC, NOW_MS), rows.columns()
    assert found.payloads.equals(expected.payloads)
    assert found.dues_ms.tolist() == expected.dues_ms.tolist()
    assert (found.rows, found.payload_bytes) == (expected.rows, expected.payload_bytes) == (3, 4)
    assert rows.take(np.array([2])).payloads.to_pylist() == [b"ccc"]


def test_a_row_without_a_due_time_is_due_now() -> None:
    assert check_rows([b"a", b"b"], None, TOPIC, NOW_MS).dues_ms == [NOW_MS, NOW_MS]


def test_those_of_several_follow_each_other() -> None:
    found = joined_columns([SendRows([b"a"], [1], 1), SendRows([b"b", b"cc"], [2, 3], 3)])
    assert found.payloads.to_pylist() == [b"a", b"b", b"cc"]
    assert (found.dues_ms.tolist(), found.rows, found.payload_bytes) == ([1, 2, 3], 3, 4)


Row = dict[str, Any]
DEFAULTS: Row = {
    "key": "",
    "group": "",
    "tags": [],
    "headers": [],
    "priority": 32_768,
    "expires": 0,
}
KINDS = {
    "key": pa.utf8(),
    "group": pa.utf8(),
    "tags": TAGS,
    "headers": HEADERS,
    "priority": pa.uint16(),
    "expires": pa.int64(),
}


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """The rows as a client's batch has them, with a column for each field that any row names."""
    named = [name for name in KINDS if any(name in row for row in rows)]
    columns = {
        name: pa.array([row.get(name, DEFAULTS[name]) for row in rows], KINDS[name])
        for name in named
    }
    return pa.record_batch({"payload": pa.array([b"p"] * len(rows), pa.binary()), **columns})


def fields_of(rows: list[Row]) -> Fields:
    """The same as a lane has them."""

    def values(name: str) -> list[Any] | None:
        if not any(name in row for row in rows):
            return None
        return [row.get(name, DEFAULTS[name]) for row in rows]

    def texts(name: str) -> list[bytes] | None:
        found = values(name)
        return None if found is None else [one.encode() for one in found]

    tags, headers = values("tags"), values("headers")
    return Fields(
        texts("key"),
        texts("group"),
        None if tags is None else [[tag.encode() for tag in row] for row in tags],
        None
        if headers is None
        else [[text.encode() for pair in row for text in pair] for row in headers],
        values("priority"),
        values("expires"),
    )


FEW = [
    [{"key": "a"}],
    [{"key": ""}, {"key": "\u00e4"}],
    [{"group": "a.x", "priority": 7}, {}],
    [{"tags": ["red", "blue"]}, {"tags": []}, {"tags": ["\u00e4"]}],
    [{"headers": [("a", "1"), ("b", "")]}, {}, {"headers": [("a", "1")]}],
    [{"tags": []}, {"headers": []}],
    [{"expires": 0}, {"expires": NOW_MS}],
    [{"expires": 0, "priority": 32_768}],
    [
        {
            "key": "k",
            "group": "g",
            "tags": ["t"],
            "headers": [("n", "v")],
            "priority": 0,
            "expires": 0,
        }
    ],
]


@pytest.mark.parametrize("rows", FEW)
def test_with_fields_they_are_the_columns_of_a_batch(rows: list[Row]) -> None:
    expected = check_send(batch_of(rows), TOPIC, NOW_MS)
    found = check_rows([b"p"] * len(rows), None, TOPIC, NOW_MS, fields_of(rows)).columns()
    for name in ("keys", "groups", "tags", "headers"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or ours.equals(theirs), name
        assert ours is None or ours.validate(full=True) is None
    for name in ("priorities", "expires_ms"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())


@pytest.mark.parametrize(
    "rows",
    [
        [{"key": "x" * 257}],
        [{"key": "a"}, {"key": "x" * 300}, {"key": "x" * 299}],
        [{}, {"group": "x" * 257}],
        [{"tags": ["a"] * 17}],
        [{"tags": ["a"]}, {"tags": ["a", "x" * 65]}],
        [{"tags": [""]}],
        [{"tags": ["a\x1fb"]}],
        [{"headers": [("", "x")]}],
        [{"headers": [("a\x1e", "x")]}],
        [{"headers": [("a", "x\x1f")]}],
        [{}, {"headers": [("a", "x" * 4_096)]}],
        [{}, {"expires": 12}],
        [{"expires": limits.INSTANT_MS_MAX + 1}],
        [{"expires": -1}],
    ],
)
def test_what_is_wrong_with_a_field_is_said_as_of_a_batch(rows: list[Row]) -> None:
    with pytest.raises(BadRequest) as of_batch:
        check_send(batch_of(rows), TOPIC, NOW_MS)
    with pytest.raises(BadRequest) as of_rows:
        check_rows([b"p"] * len(rows), None, TOPIC, NOW_MS, fields_of(rows))
    assert str(of_rows.value) == str(of_batch.value)


@pytest.mark.parametrize(
    "fields",
    [
        Fields(keys=[b"\xff"]),
        Fields(groups=[b"\xff"]),
        Fields(tags=[[b"\xff"]]),
        Fields(headers=[[b"\xff", b"x"]]),
        Fields(headers=[[b"x", b"\xff"]]),
    ],
)
def test_a_text_that_is_none_is_refused(fields: Fields) -> None:
    with pytest.raises(BadRequest, match="UTF-8"):
        check_rows([b"p"], None, TOPIC, NOW_MS, fields)


def test_more_texts_than_a_batch_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 9)
    check_rows([b"12345"], None, TOPIC, NOW_MS, Fields(keys=[b"1234"]))
    with pytest.raises(BadRequest, match="at most 9 bytes of texts"):
        check_rows([b"12345"], None, TOPIC, NOW_MS, Fields(keys=[b"12345"]))


def test_parts_with_and_without_fields_are_joined() -> None:
    parts = [
        check_rows([b"a", b"b"], None, TOPIC, NOW_MS),
        check_rows([b"c"], None, TOPIC, NOW_MS, fields_of([{"key": "k", "priority": 3}])),
        check_rows([b"d"], None, TOPIC, NOW_MS, fields_of([{"group": "g", "expires": NOW_MS}])),
    ]
    found = joined_columns(parts)
    assert found.keys is not None
    assert found.groups is not None
    assert found.priorities is not None
    assert found.expires_ms is not None
    assert found.keys.to_pylist() == ["", "", "k", ""]
    assert found.groups.to_pylist() == ["", "", "", "g"]
    assert found.priorities.tolist() == [32_768, 32_768, 3, 32_768]
    assert found.expires_ms.tolist() == [0, 0, 0, NOW_MS]
    assert (found.tags, found.headers) == (None, None)
