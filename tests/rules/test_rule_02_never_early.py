"""Rule 2: never before due by the broker's clock. The client's holding is in tests/unit/client."""

from tests.rules.conftest import MakeBroker


def test_nothing_is_sent_before_due_to_a_consumer_that_does_not_hold(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    consumer = broker.consumer(holds=False)
    broker.send([b"a"], [broker.now_ms + 10])
    broker.advance(9)
    assert consumer.payloads() == []
    broker.advance(1)
    assert consumer.payloads() == [b"a"]


def test_a_consumer_that_holds_gets_it_ahead__within_lease_ahead(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ahead_ms=20)
    consumer = broker.consumer()
    consumer.knows_its_clock()
    due_ms = broker.now_ms + 100
    broker.send([b"a"], [due_ms])
    broker.advance(79)
    assert consumer.payloads() == []
    broker.advance(11)
    [got] = consumer.take_all()
    assert got.batch.column("due").to_pylist() == [due_ms]


def test_a_consumer_with_an_unknown_clock_gets_nothing_ahead(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ahead_ms=20)
    consumer = broker.consumer()
    broker.send([b"a"], [broker.now_ms + 100])
    broker.advance(99)
    assert consumer.payloads() == []
    broker.advance(1)
    assert consumer.payloads() == [b"a"]
