"""JSON objects become columns: every field, every way to be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.errors import BadRequest
from dejaqueue.http import columns
from dejaqueue.http.columns import FIELDS, instants, lines_batch, parse_lines, send_batch
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_send

NOW_MS = 1_700_000_000_000


def rows(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = send_batch(list(messages), NOW_MS).to_pylist()
    return found


def test_payloads_are_text_bytes_or_json() -> None:
    found = rows({"payload": "é"}, {"payload_base64": "//8="}, {"json": {"a": [1, "x"]}})
    assert [row["payload"] for row in found] == ["é".encode(), b"\xff\xff", b'{"a":[1,"x"]}']


def test_due_is_a_number_a_text_a_delay_or_now() -> None:
    found = rows(
        {"payload": "", "due": 5},
        {"payload": "", "due": "1970-01-01T00:00:01Z"},
        {"payload": "", "due": "1970-01-01T02:00:00.0001+02:00"},
        {"payload": "", "delay_ms": 7},
        {"payload": ""},
        {"payload": "", "due": None, "delay_ms": None},
    )
    # A part of a millisecond is rounded up: down would be early.
    assert [row["due"] for row in found] == [5, 1_000, 1, NOW_MS + 7, NOW_MS, NOW_MS]


def test_expires_is_an_instant_or_counts_from_due() -> None:
    found = rows(
        {"payload": "", "expires": 9},
        {"payload": "", "ttl_ms": 3},
        {"payload": "", "due": 100, "ttl_ms": 3},
        {"payload": ""},
    )
    assert [row["expires"] for row in found] == [9, NOW_MS + 3, 103, None]


def test_what_is_left_out_has_its_default() -> None:
    full = {
        "payload": "x",
        "key": "k",
        "group": "g",
        "priority": 3,
        "tags": ["a", "b"],
        "headers": {"h": "v"},
    }
    batch = send_batch([full, {"payload": "y"}], NOW_MS)
    check_send(batch, Topic("t"), NOW_MS)
    first, second = batch.to_pylist()
    assert first["headers"] == [("h", "v")]
    assert first["tags"] == ["a", "b"]
    assert (first["key"], first["group"], first["priority"]) == ("k", "g", 3)
    assert second["priority"] == 32_768
    assert second["key"] is second["tags"] is second["headers"] is None


def nested(depth: int) -> list[Any]:
    """A list in a list, so many deep; a body may be 1,024."""
    found: list[Any] = []
    for _ in range(depth - 1):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ([1], "row 0"),
        ([{"payload": "x"}, None], "row 1"),
        ([{}], "payload of row 0"),
        ([{"payload": "x"}, {}], "payload of row 1"),
        ([{"payload": None}], "payload of row 0"),
        ([{"payload": 1}], "payload of row 0"),
        ([{"payload": "x", "json": 1}], "payload of row 0"),
        ([{"payload_base64": "?"}], "payload_base64 of row 0"),
        ([{"payload_base64": "é"}], "payload_base64 of row 0"),
        ([{"json": 1}, {"json": nested(254)}, {"json": nested(255)}], "json of row 2"),
        ([{"payload": "x", "tags": nested(1_020)}], "tags"),
        ([{"payload": "x", "key": nested(1_020)}], "key of row 0"),
        ([{"payload": "x", "kex": nested(1_020)}], "kex of row 0"),
        ([nested(1_020)], "row 0"),
        ([{"payload": "x", "kex": 1}], "kex of row 0"),
        ([{"payload": "x", "": 1}], " of row 0"),
        ([{"payload": "x", "due": 1.5}], "due of row 0"),
        ([{"payload": "x", "due": True}], "due of row 0"),
        ([{"payload": "x", "due": "soon"}], "due"),
        ([{"payload": "x", "due": "2030-01-01T00:00:00"}], "due"),
        ([{"payload": "x", "due": 1 << 63}], "due"),
        ([{"payload": "x", "due": 1, "delay_ms": 1}], "delay_ms of row 0"),
        ([{"payload": "x", "delay_ms": -1}], "delay_ms of row 0"),
        ([{"payload": "x", "delay_ms": 1 << 63}], "delay_ms of row 0"),
        ([{"payload": "x", "expires": 1, "ttl_ms": 1}], "ttl_ms of row 0"),
        ([{"payload": "x", "priority": 65_536}], "priority of row 0"),
        ([{"payload": "x", "priority": "1"}], "priority of row 0"),
        ([{"payload": "x", "partition": -1}], "partition of row 0"),
        ([{"payload": "x", "tags": "a"}], "tags of row 0"),
        ([{"payload": "x", "tags": [1]}], "tags"),
        ([{"payload": "x", "headers": ["a"]}], "headers of row 0"),
        ([{"payload": "x", "headers": {"a": 1}}], "headers"),
    ],
)
def test_what_is_wrong_is_named(messages: list[Any], field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        send_batch(messages, NOW_MS)
    assert refused.value.field == field


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text(max_size=5)
    | st.integers(1, 1_020).map(nested),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NAMES = st.sampled_from([*sorted(FIELDS), "other"])


@given(st.lists(st.dictionaries(NAMES, JSON, max_size=6), max_size=4))
def test_any_json_is_a_batch_or_a_bad_request(messages: list[dict[str, Any]]) -> None:
    try:
        batch = send_batch(messages, NOW_MS)
        check_send(batch, Topic("t"), NOW_MS)
    except BadRequest as refused:
        assert refused.field
    else:
        assert batch.num_rows == len(messages)


def test_lines_are_values() -> None:
    assert parse_lines(b'{"a":1}\n\n [2] \r\n"x"') == [{"a": 1}, [2], "x"]


def test_long_texts_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PIECE_BYTES", 40)
    lines: list[dict[str, Any]] = [{"payload": str(number)} for number in range(20)]
    lines[11] |= {"due": 1_800_000_000_000, "priority": 1, "key": "k"}
    lines[12] |= {"payload": "x" * 100}
    content = "\n".join(json.dumps(line) for line in lines).encode()
    batch = lines_batch(content, NOW_MS)
    check_send(batch, Topic("t"), NOW_MS)
    found = batch.to_pylist()
    assert [row["payload"].decode() for row in found] == [line["payload"] for line in lines]
    assert [row["due"] for row in found[10:13]] == [NOW_MS, 1_800_000_000_000, NOW_MS]
    assert [row["priority"] for row in found[10:13]] == [32_768, 1, 32_768]
    for line, field in ((b"no", "line 21"), (b'{"key":1}', "payload of row 20")):
        with pytest.raises(BadRequest) as refused:
            lines_batch(content + b"\n" + line, NOW_MS)
        assert refused.value.field == field
    with pytest.raises(BadRequest, match="at least one"):
        lines_batch(b"\n" * 100, NOW_MS)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b'{"a":1}\nno\n', "line 2"),
        (b'{"a":1},{"a":2}\n', "line 1"),
        (b'{"a":1\n"b":2}\n', "line 1"),
        (b'"\xff"\n', "line 1"),
    ],
)
def test_a_line_that_is_no_json_is_named(content: bytes, field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_lines(content)
    assert refused.value.field == field


@given(st.integers(0, 253_402_300_799_999))
def test_texts_of_instants_mean_what_numbers_mean(instant_ms: int) -> None:
    seconds, ms = divmod(instant_ms, 1_000)
    text = json.dumps(seconds)
    from datetime import UTC, datetime, timedelta

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(text), milliseconds=ms)
    assert instants([moment.isoformat(timespec="milliseconds")], "due").to_pylist() == [instant_ms]
