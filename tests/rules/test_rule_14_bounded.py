"""Rule 14: over max_backlog producers are refused with a retry-after, consumers go on."""

from dejaqueue.errors import ResourceExhausted
from tests.rules.conftest import MakeBroker


def test_over_max_backlog_count(make_broker: MakeBroker) -> None:
    broker = make_broker(max_backlog_count=3)
    assert broker.send([b"a", b"b"]).error is None
    refused = broker.send([b"c", b"d"])
    assert isinstance(refused.error, ResourceExhausted)
    assert refused.error.retry_after_ms > 0
    assert "max_backlog_count is 3" in str(refused.error)
    consumer = broker.consumer()
    [got] = consumer.take_all()
    assert got.payloads == [b"a", b"b"]
    consumer.ack(got)
    assert broker.send([b"c", b"d"]).error is None
