"""Rule 6: after an ack or a cancel, never again."""

from tests.rules.conftest import MakeBroker

DAY_MS = 86_400_000


def test_never_again_after_ack(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    broker.send([b"a", b"b"])
    for got in consumer.take_all():
        consumer.ack(got)
    for _ in range(5):
        broker.advance(DAY_MS)
    assert consumer.payloads() == []


def test_never_again_after_cancel(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    reply = broker.send([b"a", b"b"], [broker.now_ms + 1_000, broker.now_ms + 1_000])
    assert broker.cancel([int(reply.all_ids()[0])]).statuses is None
    for _ in range(5):
        broker.advance(1_000)
    assert set(consumer.payloads()) == {b"b"}
