"""Credit and settles of a consumer of all shards. Shards that move: tests/cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.streams import Push
from dejaqueue.client.alarm import Alarm
from dejaqueue.client.routed_transport import RoutedTransport
from dejaqueue.client.transport import Delivery
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Forbidden, Unavailable
from dejaqueue.flight.sharded_session import ShardedSession
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import DeliveryHead, Ping, Reply, Settle, SettleOp

SPREAD = 3


class Channel:
    """One shard's stream: notes what it is told, and answers settles as the test wants."""

    def __init__(self, stream: ConsumeStream, deliver: Any, end: Any) -> None:
        self.stream, self.deliver, self.end = stream, deliver, end
        self.credits: list[int] = []
        self.settles: list[Settle] = []
        self.pings: list[Ping] = []
        self.answer: Callable[[Settle], Reply] = lambda settle: Reply(settle.number)

    def credit(self, rows: int) -> None:
        self.credits.append(rows)

    def settle(self, settle: Settle) -> Future[Reply]:
        self.settles.append(settle)
        done: Future[Reply] = Future()
        done.set_result(self.answer(settle))
        return done

    def ping(self, ping: Ping) -> None:
        self.pings.append(ping)

    def close(self) -> None:
        self.credits.append(-1)

    def send(self, rows: int) -> None:
        """A delivery of so many rows."""
        batch = pa.record_batch(
            {
                "id": pa.array(np.arange(rows)),
                "attempts": pa.array(np.ones(rows, dtype=np.uint16)),
                "due": pa.array(np.zeros(rows, dtype=np.int64)),
            }
        )
        self.deliver(Delivery(DeliveryHead(0, rows, 5, 900, 0), batch))


class Consumer:
    """A session over three channels, and what came out of it."""

    def __init__(self) -> None:
        self.channels: list[Channel] = []
        self.pushes: list[Push] = []
        self.errors: list[DejaQError] = []
        self.replies: list[Reply] = []
        self.alarm = Alarm(SteadyClock(), "test")
        self.session = ShardedSession(
            cast(RoutedTransport, SimpleNamespace(open_consume=self._open)),
            ConsumeStream("t"),
            SPREAD,
            cast(Any, SimpleNamespace(push=self.pushes.append, end=self.errors.append)),
            VirtualClock(),
            self.alarm,
        )

    def _open(self, stream: ConsumeStream, deliver: Any, pong: Any, end: Any) -> Channel:
        self.channels.append(Channel(stream, deliver, end))
        return self.channels[-1]

    def take_credits(self) -> list[list[int]]:
        """What each shard was told since the last look."""
        told = [channel.credits for channel in self.channels]
        for channel in self.channels:
            channel.credits = []
        return told

    def settle(self, **more: Any) -> None:
        self.session.settle(Settle(SettleOp.ACK, 7, **more), self.replies.append)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    consumer = Consumer()
    yield consumer
    consumer.alarm.stop()


def ids(*partitions: int) -> np.ndarray:
    return np.array(partitions, dtype=np.int64) << 47 | 9


def attempts(count: int) -> np.ndarray:
    return np.ones(count, dtype=np.uint16)


def test_every_shard_is_opened_under_its_name__and_holds_nothing_ahead(consumer: Consumer) -> None:
    streams = [channel.stream for channel in consumer.channels]
    assert [stream.topic for stream in streams] == ["t=0-3", "t=1-3", "t=2-3"]
    assert not any(stream.holds for stream in streams)
    assert consumer.take_credits() == [[], [], []]


def test_credit_is_shared_out__so_that_every_shard_may_send(consumer: Consumer) -> None:
    consumer.session.credit(30)
    assert consumer.take_credits() == [[10], [10], [10]]


def test_at_most_a_row_for_each_shard_less_one_comes_beyond_the_credit(consumer: Consumer) -> None:
    consumer.session.credit(1)
    told = [sum(rows) for rows in consumer.take_credits()]
    assert told == [1, 1, 1]


def test_a_shard_gets_more_when_half_of_its_share_is_used_up(consumer: Consumer) -> None:
    consumer.session.credit(30)
    consumer.take_credits()
    consumer.channels[0].send(4)
    assert consumer.take_credits() == [[], [], []]
    consumer.channels[0].send(3)
    assert consumer.take_credits() == [[5], [], []]
    assert [push.leased.sequences.size for push in consumer.pushes] == [4, 3]


def test_no_credit_voids_all_there_was(consumer: Consumer) -> None:
    consumer.session.credit(30)
    consumer.take_credits()
    consumer.session.credit(0)
    assert consumer.take_credits() == [[0], [0], [0]]
    consumer.channels[0].send(2)
    assert consumer.take_credits() == [[], [], []]


def test_credit_is_withdrawn_as_far_as_it_is_there(consumer: Consumer) -> None:
    consumer.session.credit(30)
    consumer.take_credits()
    assert consumer.session.withdraw(12) == 12
    assert consumer.take_credits() == [[0, 6], [0, 6], [0, 6]]
    assert consumer.session.withdraw(99) == 18
    assert consumer.session.withdraw(1) == 0


def test_a_settle_goes_to_the_shard_that_has_the_message(consumer: Consumer) -> None:
    consumer.settle(lease_id=5, partition=4)
    consumer.settle(ids=ids(2, 5), attempts=attempts(2))
    assert [len(channel.settles) for channel in consumer.channels] == [0, 1, 1]
    assert [reply.number for reply in consumer.replies] == [7, 7]


def test_settles_of_several_shards_are_one_reply__in_the_order_of_the_rows(
    consumer: Consumer,
) -> None:
    lost = np.array([3, 4], dtype=np.uint8)
    consumer.channels[1].answer = lambda settle: Reply(settle.number, 2, statuses=lost)
    consumer.settle(ids=ids(1, 0, 4, 2), attempts=attempts(4))
    [reply] = consumer.replies
    assert (reply.number, reply.rows, reply.error) == (7, 4, None)
    assert reply.statuses is not None
    assert reply.statuses.tolist() == [3, 0, 4, 0]


def test_a_shard_that_refuses_has_the_whole_settle_refused(consumer: Consumer) -> None:
    refusal = Unavailable("away")
    consumer.channels[2].answer = lambda settle: Reply(settle.number, error=refusal)
    consumer.settle(ids=ids(1, 2, 0), attempts=attempts(3))
    [reply] = consumer.replies
    assert (reply.error, reply.rows) == (refusal, 3)


def test_elsewhere_is_the_answer_only_if_no_shard_has_settled_anything(consumer: Consumer) -> None:
    moving = Elsewhere("between two owners")
    consumer.channels[1].answer = lambda settle: Reply(settle.number, error=moving)
    consumer.settle(ids=ids(1, 0), attempts=attempts(2))
    consumer.channels[0].answer = consumer.channels[1].answer
    consumer.settle(ids=ids(0, 1), attempts=attempts(2))
    partly, not_at_all = (reply.error for reply in consumer.replies)
    assert isinstance(partly, Unavailable)
    assert not isinstance(partly, Elsewhere)
    assert "some of it was done" in str(partly)
    assert not_at_all is moving


def test_a_settle_of_nothing_is_refused(consumer: Consumer) -> None:
    consumer.settle(ids=ids(), attempts=attempts(0))
    assert isinstance(consumer.replies[0].error, BadRequest)


def test_a_shard_between_two_owners_answers_so__and_the_others_go_on(consumer: Consumer) -> None:
    consumer.channels[0].end(None)
    consumer.settle(lease_id=5, partition=0)
    assert isinstance(consumer.replies[0].error, Unavailable)
    consumer.settle(lease_id=5, partition=1)
    assert consumer.replies[1].error is None
    assert consumer.errors == []


def test_what_a_shard_refuses_ends_the_consumer(consumer: Consumer) -> None:
    consumer.channels[1].end(Forbidden("no role"))
    assert [str(error) for error in consumer.errors] == ["no role"]


def test_one_shard_alone_hears_the_report_of_a_ping(consumer: Consumer) -> None:
    consumer.session.seen()
    assert [len(channel.pings) for channel in consumer.channels] == [1, 1, 1]
    pong = consumer.session.ping(Ping(3, 44))
    assert (pong.number, pong.client_us) == (3, 44)
