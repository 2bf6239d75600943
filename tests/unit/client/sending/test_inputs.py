"""What users send, as record batches; and every mistake they make (rule 15)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.client.sending import inputs
from dejaqueue.errors import BadRequest
from dejaqueue.schema import messages

NOW_MS = 1_700_000_000_000
NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def now_ms() -> int:
    return NOW_MS


def whole(rows: Any) -> pa.Table:
    return pa.Table.from_batches(list(inputs.batches_of(rows, now_ms)))


@pytest.mark.parametrize(
    ("due", "want"),
    [
        (0, 0),
        (NOON, NOON_MS),
        (NOON.astimezone(timezone(timedelta(hours=5, minutes=45))), NOON_MS),
        (NOON + timedelta(microseconds=1), NOON_MS + 1),
        (np.int64(NOON_MS), NOON_MS),
    ],
)
def test_due_times(due: Any, want: int) -> None:
    assert inputs.due_ms_of(due) == want


@pytest.mark.parametrize(
    "due",
    [
        datetime(2030, 1, 1),
        -1,
        1,
        NOON_MS // 1_000,
        limits.INSTANT_MS_MAX + 1,
        "tomorrow",
        1.5,
        True,
        None,
    ],
)
def test_bad_due_times(due: Any) -> None:
    with pytest.raises(BadRequest, match=r"^due: "):
        inputs.due_ms_of(due)


def test_a_naive_datetime_says_what_it_lacks() -> None:
    with pytest.raises(BadRequest, match="time zone"):
        inputs.due_ms_of(datetime(2030, 1, 1))


@pytest.mark.parametrize(("delay", "want"), [(0, 0), (1.5, 1500), (timedelta(days=1), 86_400_000)])
def test_delays(delay: Any, want: int) -> None:
    assert inputs.delay_ms_of(delay) == want


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "1", None, True])
def test_bad_delays(delay: Any) -> None:
    with pytest.raises(BadRequest, match=r"^delay: "):
        inputs.delay_ms_of(delay)


def test_a_conforming_batch_is_sent_as_it_is() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"a"]), pa.array([5])],
        schema=pa.schema([messages.SEND.field("payload"), messages.SEND.field("due")]),
    )
    (sent,) = inputs.batches_of(batch, now_ms)
    assert sent is batch


@pytest.mark.parametrize(
    "payload",
    [
        pa.array(["a", "b"]),
        pa.array(["a", "b"], pa.large_utf8()),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([b"a", b"b"], pa.large_binary()),
        pa.array([b"a", b"b"], pa.binary_view()),
        pa.array([b"a", b"b"], pa.binary(1)),
    ],
    ids=lambda array: str(array.type),
)
def test_payload_columns_are_cast(payload: pa.Array) -> None:
    sent = whole(pa.table({"payload": payload}))
    assert sent.schema.field("payload").equals(messages.SEND.field("payload"))
    assert sent["payload"].to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_timestamps_of_any_unit_and_zone(unit: str, zone: str) -> None:
    table = pa.table({"due": pa.array([NOON], pa.timestamp(unit, zone)), "payload": [b"x"]})
    assert whole(table)["due"].to_pylist() == [NOON_MS]


def test_parts_of_milliseconds_are_rounded_up() -> None:
    due = pa.array([1_000, 1_001, 1_999, -1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    sent = whole(pa.table({"payload": [b"x"] * 4, "due": due}))
    assert sent["due"].to_pylist() == [1, 2, 2, 0]


def test_columns_come_in_the_order_of_the_wire() -> None:
    sent = whole(
        pa.table(
            {
                "headers": pa.array([[("a", "b")]], messages.HEADERS),
                "tags": pa.array([["x"]], pa.large_list(pa.large_utf8())),
                "priority": pa.array([3], pa.int64()),
                "key": pa.array(["k"]).dictionary_encode(),
                "payload": [b"x"],
            }
        )
    )
    assert sent.schema.names == ["payload", "key", "priority", "tags", "headers"]
    assert sent.schema.field("priority").type == pa.uint16()
    assert sent["tags"].to_pylist() == [["x"]]


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"body": [b"x"]}, "body"),
        ({"due": [1]}, "payload"),
        ({"payload": [None, b"x"]}, "payload"),
        ({"payload": [1, 2]}, "payload"),
        ({"payload": [b"x"], "due": pa.array([None], pa.int64())}, "due"),
        ({"payload": [b"x"], "due": [datetime(2030, 1, 1)]}, "due"),
        ({"payload": [b"x"], "due": ["soon"]}, "due"),
        ({"payload": [b"x"], "due": [1.5]}, "due"),
        ({"payload": [b"x"], "priority": [70_000]}, "priority"),
        ({"payload": [b"x"], "key": [5]}, "key"),
        ({"payload": [b"x"], "tags": ["red"]}, "tags"),
    ],
    ids=lambda value: str(value).partition(" object at")[0],  # the same in every process
)
def test_bad_tables(columns: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        whole(pa.table(columns))
    assert caught.value.field == field


@pytest.mark.parametrize("rows", [5, "text", {"payload": b"x"}, None])
def test_what_is_no_list_and_no_table(rows: Any) -> None:
    with pytest.raises(BadRequest, match=r"^messages: a list of dicts, or an Arrow table"):
        whole(rows)


def test_large_tables_are_split_by_rows() -> None:
    table = pa.table({"payload": pa.array([b"x"] * 20_000)})
    sizes = [batch.num_rows for batch in inputs.batches_of(table, now_ms)]
    assert sum(sizes) == 20_000
    assert max(sizes) <= inputs.ROWS_MAX


def test_large_tables_are_split_by_bytes() -> None:
    payloads = [b"x"] * 5_000 + [b"y" * (1 << 20)] * 40
    batches = list(inputs.batches_of(pa.table({"payload": payloads}), now_ms))
    assert max(batch.nbytes for batch in batches) <= 2 * inputs.BYTES_MAX
    assert pa.Table.from_batches(batches)["payload"].to_pylist() == payloads


def test_an_empty_table_sends_nothing() -> None:
    assert list(inputs.batches_of(pa.table({"payload": pa.array([], pa.binary())}), now_ms)) == []
    assert list(inputs.batches_of([], now_ms)) == []


def test_dicts() -> None:
    sent = whole([{"payload": "a", "due": NOON, "key": "k"}, {"payload": b"b", "delay": 2.5}, b"c"])
    assert sent["payload"].to_pylist() == [b"a", b"b", b"c"]
    assert sent["due"].to_pylist() == [NOON_MS, NOW_MS + 2_500, NOW_MS]
    assert sent["key"].to_pylist() == ["k", None, None]
    assert whole([b"a", "b"]).schema.names == ["payload"]
    assert whole([{"json": {"a": 1}}, {"json": None}])["payload"].to_pylist() == [
        b'{"a":1}',
        b"null",
    ]


def test_dicts_with_everything() -> None:
    row = {"payload": b"x", "priority": 4, "group": "g", "tags": ["t"], "headers": {"a": "b"}}
    sent = whole([row, {"payload": b"y"}]).to_pylist()
    assert sent[0]["headers"] == [("a", "b")]
    assert sent[1] == {
        "payload": b"y",
        "group": "",
        "priority": messages.DEFAULT_PRIORITY,
        "tags": None,
        "headers": None,
    }


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"key": "k"}, "messages[1].payload"),
        ({"payload": b"x", "dew": 5}, "messages[1].dew"),
        ({"payload": b"x", "due": datetime(2030, 1, 1)}, "messages[1].due"),
        ({"payload": b"x", "due": 5, "delay": 5}, "messages[1].delay"),
        ({"payload": b"x", "priority": -1}, "messages[1].priority"),
        ({"payload": b"x", "key": 5}, "messages[1].key"),
        ({"payload": b"x", "json": 1}, "messages[1].json"),
        ({"json": [{1}]}, "messages[1].json[0]"),
        (7, "messages[1]"),
    ],
    ids=str,
)
def test_bad_dicts(row: Any, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        whole([{"payload": b"first"}, row])
    assert caught.value.field == field


@pytest.mark.parametrize("place", [2, 3])
def test_a_bad_dict_of_a_later_batch_is_named_by_its_place_in_all(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "ROWS_MAX", 2)
    rows = [{"payload": b"x"} for _ in range(place)]
    with pytest.raises(BadRequest) as caught:
        whole([*rows, {"payload": b"x", "priority": -1}])
    assert caught.value.field == f"messages[{place}].priority"


def test_pandas_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"payload": ["a", "b"], "due": pandas.to_datetime([NOON, NOON], utc=True)}
    )
    sent = whole(frame)
    assert sent["due"].to_pylist() == [NOON_MS, NOON_MS]
    assert sent["payload"].to_pylist() == [b"a", b"b"]


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    sent = whole(polars.DataFrame({"payload": ["a", "b"], "due": [NOON, NOON]}))
    assert sent["due"].to_pylist() == [NOON_MS, NOON_MS]


def test_dues_for_moves() -> None:
    assert inputs.dues_of(NOON, 2).tolist() == [NOON_MS, NOON_MS]
    assert inputs.dues_of([0, NOON], 2).tolist() == [0, NOON_MS]
    assert inputs.dues_of(np.array([NOON_MS, 0]), 2).tolist() == [NOON_MS, 0]
    assert inputs.dues_of(np.array(["2030-01-01T12:00"], "datetime64[s]"), 1).tolist() == [NOON_MS]
    assert inputs.dues_of(pa.array([NOON], pa.timestamp("us", "UTC")), 1).tolist() == [NOON_MS]
    for bad in ([0], np.array([0, 1_800_000_000]), np.array([1.5, 2.5]), "soon", {"a": 1}):
        with pytest.raises(BadRequest, match=r"^due\b"):
            inputs.dues_of(bad, 2)


def test_ids_and_keys() -> None:
    assert inputs.int64s_of([1, 2], "ids").tolist() == [1, 2]
    assert inputs.int64s_of(np.array([1], np.uint16), "ids").dtype == np.int64
    assert inputs.int64s_of([], "ids").tolist() == []
    assert inputs.texts_of(["a"], "keys").to_pylist() == ["a"]
    assert inputs.texts_of(pa.chunked_array([["a"], ["b"]]), "keys").to_pylist() == ["a", "b"]
    for ids in (["a"], [None, 1], [1.5], np.array([[1]]), 7):
        with pytest.raises(BadRequest, match=r"^ids: "):
            inputs.int64s_of(ids, "ids")
    for keys in ("a", [1], [None, "a"], 7):
        with pytest.raises(BadRequest, match=r"^keys: "):
            inputs.texts_of(keys, "keys")
