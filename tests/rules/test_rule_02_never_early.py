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


def test_consumers_that_go_before_it_is_due_neither_bring_it_early_nor_put_it_off(
    make_broker: MakeBroker,
) -> None:
    """None of them gives anything back itself, as the simplest client: the broker does, when its
    stream ends."""
    broker = make_broker(lease_ahead_ms=1_000)
    due_ms = broker.now_ms + 700
    broker.send([b"a"], [due_ms])
    for _ in range(6):
        consumer = broker.consumer()
        consumer.knows_its_clock()
        [got] = consumer.take_all()
        assert got.batch.column("due").to_pylist() == [due_ms]
        consumer.session.close(release=True)
        broker.settle_down()
        broker.advance(100)
    last = broker.consumer(holds=False)
    assert last.payloads() == []
    broker.advance(100)
    assert last.payloads() == [b"a"]
