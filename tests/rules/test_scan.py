"""A scan finds each message that does not change meanwhile once, and leases nothing.

Not covered here: the stream on the wire (tests/integration/test_scan.py).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import scan as scanning
from dejaqueue.errors import BadRequest
from dejaqueue.schema.messages import SCAN
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker


def scan(broker: BrokerFixture, **ticket: Any) -> pa.Table:
    schema, batches = broker.broker.read("scan", {"topic": TOPIC, "partition": 0} | ticket)
    return pa.Table.from_batches(batches, schema)


def send_columns(broker: BrokerFixture, **columns: pa.Array) -> None:
    assert broker.write("enqueue", columns).error is None


def ids(broker: BrokerFixture, **ticket: Any) -> list[int]:
    found: list[int] = scan(broker, columns=["id"], **ticket).column("id").to_pylist()
    return found


@pytest.mark.one_broker("counts ids from 0")
def test_a_stretch_of_a_partition_comes_in_order_of_its_ids(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"%d" % number for number in range(2_000)])
    assert ids(broker) == list(range(2_000))
    assert ids(broker, first=500, end=510) == list(range(500, 510))
    assert ids(broker, first=2_000) == []
    assert broker.broker.call("scan_ranges", {"name": TOPIC}) == {
        "partitions": [{"partition": 0, "first": 0, "end": 2_000, "live": 2_000}]
    }


def test_what_comes_in_meanwhile_is_not_waited_for(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"a"])
    _, batches = broker.broker.read("scan", {"topic": TOPIC, "partition": 0})
    first = next(batches)
    broker.send([b"b"])
    assert first.column("payload").to_pylist() == [b"a"]
    assert list(batches) == []


@pytest.mark.one_process("sets a limit of brokers in this process")
def test_batches_are_as_large_as_their_payloads_let_them(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "BATCH_BYTES", 20_000)
    broker = make_broker()
    broker.send([b"x" * 1_000] * 1_000)
    _, batches = broker.broker.read(
        "scan", {"topic": TOPIC, "partition": 0, "columns": ["payload"]}
    )
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == 1_000
    assert 15 <= max(sizes[1:]) <= 20


@pytest.mark.one_broker("counts ids from 0")
def test_filters_and_names_hold_as_for_a_peek(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now_ms = broker.clock.now_ms()
    send_columns(
        broker,
        payload=pa.array([b"a", b"b", b"c"], pa.binary()),
        due=pa.array([now_ms + 1_000, now_ms + 2_000, now_ms + 3_000]),
        key=pa.array(["k0", "k1", "k2"]),
        group=pa.array(["g", None, "g"]),
        priority=pa.array([1, 2, 3], pa.uint16()),
    )
    assert ids(broker, group="g") == [0, 2]
    assert ids(broker, due_from=now_ms + 2_000) == [1, 2]
    assert ids(broker, priority_to=2) == [0, 1]
    assert ids(broker, ids=[2, 7, 0]) == [0, 2]
    assert ids(broker, keys=["k1", "k7"]) == [1]
    assert ids(broker, keys=["k1"], group="g") == []
    assert scan(broker, columns=["group", "key"]).to_pylist() == [
        {"key": "k0", "group": "g"},
        {"key": "k1", "group": None},
        {"key": "k2", "group": "g"},
    ]


def test_every_column_has_its_type_and_says_what_is(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now_ms = broker.clock.now_ms()
    send_columns(
        broker,
        payload=pa.array([b"a", b"b"], pa.binary()),
        due=pa.array([now_ms, now_ms + 1_000]),
        tags=pa.array([["x"], None]),
        headers=pa.array([None, {"h": "v"}], pa.map_(pa.utf8(), pa.utf8())),
        expires=pa.array([None, now_ms + 9_000], pa.int64()),
    )
    broker.consumer().take_all()
    found = scan(broker)
    assert found.schema.equals(SCAN)
    rows = found.to_pylist()
    assert [row["state"] for row in rows] == ["leased", "scheduled"]
    assert [row["tags"] for row in rows] == [["x"], None]
    assert [row["headers"] for row in rows] == [None, [("h", "v")]]
    assert [row["expires"] for row in rows] == [None, now_ms + 9_000]
    assert [row["attempts"] for row in rows] == [1, 0]


def test_a_message_that_is_finished_on_the_way_is_left_out(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=1)
    broker.send([b"x" * 3_000] * 500)
    _, batches = broker.broker.read(
        "scan", {"topic": TOPIC, "partition": 0, "columns": ["id", "key"]}
    )
    got = next(batches).num_rows
    broker.cancel(list(range(got, 500)))
    rest = sum(batch.num_rows for batch in batches)
    assert got + rest <= 500


@pytest.mark.parametrize(
    ("ticket", "field"),
    [
        ({"partition": 1}, "partition"),
        ({"partition": None}, "partition"),
        ({"columns": ["colour"]}, "columns"),
        ({"columns": "id"}, "columns"),
        ({"first": -1}, "first"),
        ({"end": limits.SEQUENCE_MAX + 1}, "end"),
        ({"colour": 1}, "colour"),
        ({"keys": [1]}, "ids or keys"),
    ],
)
def test_a_wrong_ticket_is_refused(
    make_broker: MakeBroker, ticket: dict[str, Any], field: str
) -> None:
    broker = make_broker()
    with pytest.raises(BadRequest) as refused:
        scan(broker, **ticket)
    assert refused.value.field == field
