"""Rule 14: over a quota producers are refused with a retry-after, consumers go on."""

from concurrent.futures import Future

import pyarrow as pa
import pytest

from dejaqueue.errors import ResourceExhausted
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC
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


@pytest.mark.one_broker("a shard says what is left of its part")
def test_over_max_backlog_bytes__exact_to_the_byte(make_broker: MakeBroker) -> None:
    broker = make_broker(max_backlog_bytes=100, partitions=2)
    assert broker.send([b"x" * 60], number=1).error is None
    assert broker.send([b"y" * 39, b""], number=2).error is None
    refused = broker.send([b"zz"], number=3)
    assert isinstance(refused.error, ResourceExhausted)
    assert "max_backlog_bytes is 100, 99 bytes are live and 2 want in" in str(refused.error)
    assert refused.error.retry_after_ms > 0
    assert broker.send([b"z"], number=3).error is None
    consumer = broker.consumer()
    for got in consumer.take_all():
        if b"y" * 39 in got.payloads:
            at = got.payloads.index(b"y" * 39)
            consumer.ack_rows(got.ids[at : at + 1], got.attempts[at : at + 1])
    broker.settle_down()
    assert broker.send([b"w" * 41], number=4).error is not None
    assert broker.send([b"w" * 39], number=4).error is None


def test_backlog_bytes_are_known_after_a_restart(on_files: MakeBroker) -> None:
    broker = on_files(max_backlog_bytes=100)
    [first] = broker.send([b"x" * 70], [broker.now_ms + 1_000]).all_ids().tolist()
    broker.send([b"y" * 20])
    broker.restart()
    refused = broker.send([b"z" * 11])
    assert "90 bytes are live" in str(refused.error)
    broker.cancel([first])
    assert broker.send([b"z" * 80]).error is None


def test_a_limit_of_bytes_that_is_set_later__counts_with_the_mean_what_came_before(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.send([b"a" * 10, b"b" * 50])
    broker.broker.alter_topic(TOPIC, {"max_backlog_bytes": 100})
    assert broker.send([b"c" * 41]).error is not None
    assert broker.send([b"c" * 40]).error is None


def test_a_producer_sends_at_its_rate__with_a_second_in_advance(make_broker: MakeBroker) -> None:
    broker = make_broker(producer_rate_max=100)
    assert broker.send([b"x"] * 100, producer="p", number=1).error is None
    refused = broker.send([b"x"] * 3, producer="p", number=2)
    assert isinstance(refused.error, ResourceExhausted)
    assert refused.error.retry_after_ms == 30
    assert "producer_rate_max is 100 messages a second" in str(refused.error)
    assert broker.send([b"x"], producer="q", number=1).error is None
    broker.clock.advance(ms=29)
    assert broker.send([b"x"] * 3, producer="p", number=2).error is not None
    broker.clock.advance(ms=1)
    assert broker.send([b"x"] * 3, producer="p", number=2).error is None


def test_who_waits_as_long_as_it_is_told_flows_at_the_rate(make_broker: MakeBroker) -> None:
    broker = make_broker(producer_rate_max=1_000)
    started_ms, sent = broker.now_ms, 0
    while broker.now_ms < started_ms + 10_000:
        reply = broker.send([b"x"] * 70, producer="p", number=sent + 1)
        if reply.error is None:
            sent += 70
        else:
            assert isinstance(reply.error, ResourceExhausted)
            broker.clock.advance(ms=reply.error.retry_after_ms)
    assert abs(sent - 11_000) <= 70  # ten seconds, and one in advance


def test_a_batch_of_more_than_a_second_is_let_in_and_paid_for(make_broker: MakeBroker) -> None:
    broker = make_broker(producer_rate_max=10)
    assert broker.send([b"x"] * 35, producer="p", number=1).error is None
    refused = broker.send([b"x"], producer="p", number=2)
    assert isinstance(refused.error, ResourceExhausted)
    assert refused.error.retry_after_ms == 2_600
    broker.clock.advance(ms=2_600)
    assert broker.send([b"x"], producer="p", number=2).error is None


def test_streams_of_one_client_share_its_rate(make_broker: MakeBroker) -> None:
    """A client adds something unique to its name, for each stream."""
    broker = make_broker(producer_rate_max=2)
    streams = [f"billing-{number:032x}" for number in range(3)]
    replies = [broker.send([b"x"], producer=name, number=1) for name in streams]
    assert [reply.error is None for reply in replies] == [True, True, False]


def test_a_batch_larger_than_all_that_may_wait_is_taken_alone(make_broker: MakeBroker) -> None:
    """It was told to come back for ever."""
    broker = make_broker()
    writer = broker.broker.open_write(WriteStream(TOPIC).check())
    writer._bytes_max = lambda: 1_000
    answer: Future[Reply] = Future()
    writer.submit(1, pa.record_batch({"payload": [b"x" * 600] * 2}), answer.set_result)
    assert answer.result(PATIENCE_SECONDS).error is None
