"""Claims: what is read by its number is the same again, until it is acked or nobody holds it.

Not covered here: Spark, which reads so (tests/spark/test_stream_read.py).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.model import TopicKind
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

LEASE_MS = 60_000


def claim(broker: BrokerFixture, rows: int, partition: int = 0, **more: Any) -> tuple[int, int]:
    body = {"topic": TOPIC, "partition": partition, "rows": rows, "lease_ms": LEASE_MS}
    answer = broker.broker.call("claim", body | more)
    return -1 if answer["claim"] is None else answer["claim"], answer["rows"]


def read(broker: BrokerFixture, number: int, **more: Any) -> list[bytes]:
    ticket = {"topic": TOPIC, "partition": 0, "claim": number, "columns": ["payload"]}
    schema, batches = broker.broker.read("claim", ticket | more)
    found: list[bytes] = pa.Table.from_batches(batches, schema).column(0).to_pylist()
    return found


def ack(broker: BrokerFixture, *numbers: int) -> dict[str, Any]:
    body = {"topic": TOPIC, "claims": {"0": list(numbers)}}
    lost: dict[str, Any] = broker.broker.call("ack_claims", body)["lost"]
    return lost


def extend(broker: BrokerFixture, *numbers: int) -> dict[str, Any]:
    body = {"topic": TOPIC, "claims": {"0": list(numbers)}, "lease_ms": LEASE_MS}
    lost: dict[str, Any] = broker.broker.call("extend_claims", body)["lost"]
    return lost


def send(broker: BrokerFixture, count: int, first: int = 0) -> None:
    broker.send([b"%d" % number for number in range(first, first + count)])


def test_a_claim_is_read_as_often_as_one_likes__in_one_order(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now_ms = broker.now_ms
    broker.send([b"late", b"early", b"future"], [now_ms, now_ms - 5, now_ms + 5_000])
    number, rows = claim(broker, 10)
    assert rows == 2
    for _ in range(2):
        assert read(broker, number) == [b"early", b"late"]
    assert read(broker, number, first=1, end=2) == [b"late"]
    assert claim(broker, 10) == (-1, 0)


def test_claims_and_consumers_never_have_the_same_message(make_broker: MakeBroker) -> None:
    broker = make_broker()
    send(broker, 10)
    first, _ = claim(broker, 4)
    second, _ = claim(broker, 4)
    got = [*read(broker, first), *read(broker, second), *broker.consumer().payloads()]
    assert sorted(got) == sorted(b"%d" % number for number in range(10))


def test_an_acked_claim_is_done__a_second_ack_says_it_is_over(make_broker: MakeBroker) -> None:
    broker = make_broker()
    send(broker, 10)
    number, _ = claim(broker, 10)
    assert ack(broker, number) == {}
    assert ack(broker, number) == {"0": [number]}
    with pytest.raises(Refused, match=f"claim {number} of partition 0 of topic t is over"):
        read(broker, number)
    broker.advance(2 * LEASE_MS)
    assert claim(broker, 10) == (-1, 0)


def test_a_claim_that_nobody_extends_returns__one_that_is_extended_stays(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    send(broker, 4)
    left, _ = claim(broker, 2)
    held, _ = claim(broker, 2)
    broker.advance(LEASE_MS - 1)
    assert extend(broker, held) == {}
    broker.advance(LEASE_MS - 1)
    assert read(broker, held) == [b"2", b"3"]
    again, rows = claim(broker, 10)
    assert rows == 2
    assert read(broker, again) == [b"0", b"1"]
    assert extend(broker, left, held) == {"0": [left]}
    with pytest.raises(Refused, match="nobody extended it"):
        read(broker, left)


def test_a_claim_outlives_the_broker(on_files: MakeBroker) -> None:
    broker = on_files()
    send(broker, 5)
    number, _ = claim(broker, 3)
    before = read(broker, number)
    broker.restart()
    assert read(broker, number) == before == [b"0", b"1", b"2"]
    assert ack(broker, number) == {}
    assert broker.consumer().payloads() == [b"3", b"4"]


def test_a_limit_in_bytes_is_about_payloads_as_they_were_sent(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"x" * 1_000] * 20)
    assert claim(broker, 100, bytes=5_000)[1] == 5
    assert claim(broker, 3, bytes=5_000)[1] == 3
    assert claim(broker, 100, bytes=1)[1] == 1


def test_other_orders_than_time_hold_too(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority")
    columns = {
        "payload": pa.array([b"later", b"first", b"second"], pa.binary()),
        "priority": pa.array([9, 1, 2], pa.uint16()),
    }
    broker.write("enqueue", columns)
    number, _ = claim(broker, 2)
    assert read(broker, number) == [b"first", b"second"]


def dues(broker: BrokerFixture, number: int, **more: Any) -> list[int | None]:
    ticket = {"topic": TOPIC, "partition": 0, "claim": number, "columns": ["due"]}
    schema, batches = broker.broker.read("claim", ticket | more)
    found: list[int | None] = pa.Table.from_batches(batches, schema).column(0).to_pylist()
    return found


def test_rows_of_a_claim_tell_when_they_became_due(on_files: MakeBroker) -> None:
    broker = on_files()
    now_ms = broker.now_ms
    broker.send([b"late", b"early"], [now_ms, now_ms - 5])
    number, _ = claim(broker, 10)
    assert extend(broker, number) == {}
    assert dues(broker, number) == [now_ms - 5, now_ms]
    assert dues(broker, number, first=1) == [now_ms]
    for _ in range(20):  # what is over is forgotten
        send(broker, 1)
        ack(broker, claim(broker, 1)[0])
    assert dues(broker, number) == [now_ms - 5, now_ms]
    broker.restart()
    assert dues(broker, number) == [None, None]
    assert read(broker, number) == [b"early", b"late"]


def test_a_claim_says_how_many_more_are_due(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now_ms = broker.now_ms
    broker.send([b"%d" % number for number in range(10)], [now_ms] * 9 + [now_ms + 5_000])
    body = {"topic": TOPIC, "partition": 0, "rows": 4}
    assert [broker.broker.call("claim", body)["ready"] for _ in range(4)] == [5, 1, 0, 0]


@pytest.mark.one_process("sets a limit of brokers in this process")
@pytest.mark.parametrize("kind", [TopicKind.TIMELINE, TopicKind.PRIORITY])
def test_of_a_large_partition_it_may_be_less(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, kind: TopicKind
) -> None:
    monkeypatch.setattr(limits, "BROWSE_ROWS_MAX", 8)
    broker = make_broker(kind=kind)
    send(broker, 20)
    body = {"topic": TOPIC, "partition": 0, "rows": 15}
    assert 5 <= broker.broker.call("claim", body)["ready"] <= 20
    assert broker.broker.call("claim", body)["ready"] == 0


def test_a_paused_topic_gives_none(make_broker: MakeBroker) -> None:
    broker = make_broker(paused=True)
    send(broker, 1)
    assert claim(broker, 1) == (-1, 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"partition": 1}, "partition"),
        ({"partition": None}, "partition"),
        ({"rows": 0}, "rows"),
        ({"lease_ms": 1}, "lease_ms"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_wrong_claim_is_refused(
    make_broker: MakeBroker, body: dict[str, Any], field: str
) -> None:
    broker = make_broker()
    whole = {"topic": TOPIC, "partition": 0, "rows": 1}
    with pytest.raises(BadRequest) as refused:
        broker.broker.call("claim", whole | body)
    assert refused.value.field == field


@pytest.mark.parametrize("claims", [None, [1], {"1": [1]}, {"x": [1]}, {"0": 1}, {"0": ["1"]}])
def test_a_wrong_list_of_claims_is_refused(make_broker: MakeBroker, claims: object) -> None:
    broker = make_broker()
    for is_ack in (True, False):
        with pytest.raises(BadRequest, match="claims"):
            broker.broker.call(
                "ack_claims" if is_ack else "extend_claims", {"topic": TOPIC, "claims": claims}
            )


def test_a_topic_whose_partitions_belong_to_consumers_is_not_claimed(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(assignment="exclusive")
    with pytest.raises(BadRequest, match="shared"):
        claim(broker, 1)
