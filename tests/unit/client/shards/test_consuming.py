"""A consumer of a topic that turns out to be in shards: streams, turns, settles; time by hand.

Not covered: one stream's credit, leases, retries (tests/unit/client/consuming/test_consume_core.py)
and brokers that move shards (tests/cluster/test_spread.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.client.connection_watch import ConnectionWatch
from dejaqueue.client.consuming.consume_settings import ConsumeSettings
from dejaqueue.client.link import WriteLink
from dejaqueue.client.shards.consuming import TopicCore
from dejaqueue.errors import Elsewhere, TopicUnknown
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.topic_names import shard_name
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from tests.unit.client.fake_transport import FakeConsume, FakeTransport, ok
from tests.unit.client.still_alarm import StillAlarm

SPREAD = 2


class ShardedTransport(FakeTransport):
    """A broker that has the topic in shards, or learns it later."""

    spread = SPREAD

    def open_consume(
        self, stream: ConsumeStream, on_delivery: Any, on_pong: Any, on_end: Any
    ) -> FakeConsume:
        if stream.topic == "t" and self.spread:
            raise Elsewhere("in shards", spread=self.spread)
        return super().open_consume(stream, on_delivery, on_pong, on_end)


class Bench:
    """A consumer whose brokers and clock the test moves."""

    def __init__(self, spread: int = SPREAD) -> None:
        self.clock = VirtualClock(start_ms=1_000_000)
        self.transport = ShardedTransport(ok, shares_clock=True)
        self.transport.spread = spread
        self.core = TopicCore(
            self.transport,
            ConsumeStream("t"),
            ConsumeSettings(101, True, 1_000, None),
            self.clock,
            StillAlarm(self.clock),
            self.link_for,
            ConnectionWatch("", self.clock),
        )
        self.core.open()

    def link_for(self, stream: WriteStream) -> WriteLink:
        return WriteLink(self.transport, stream, self.clock, retry_ms_max=1_000)

    def channel(self, shard: int) -> FakeConsume:
        name = shard_name("t", shard, SPREAD)
        [found] = [one for one in self.transport.consumes if one.stream.topic == name]
        return found

    def deliver(self, shard: int, *, due_in_ms: int = 0, rows: int = 1) -> None:
        now_us = self.clock.now_us()
        dues_ms = [now_us // 1000 + due_in_ms] * rows
        first_id = shard << limits.SEQUENCE_BITS
        self.channel(shard).deliver(dues_ms, broker_us=now_us, first_id=first_id)

    def taken_shard(self) -> int | None:
        rows = self.core.take(1)
        return None if rows is None else int(rows.ids[0]) >> limits.SEQUENCE_BITS


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.core.close()


def test_every_shard_is_consumed_apart__with_its_part_of_the_credit(bench: Bench) -> None:
    assert len(bench.transport.consumes) == SPREAD
    assert [bench.channel(shard).credits for shard in range(SPREAD)] == [[51], [51]]


def test_shards_are_taken_from_in_turn(bench: Bench) -> None:
    bench.deliver(0, rows=2)
    bench.deliver(1, rows=2)
    assert [bench.taken_shard() for _ in range(5)] == [0, 1, 0, 1, None]


def test_the_next_row_is_the_earliest_of_all_shards(bench: Bench) -> None:
    assert bench.core.release_us() is None
    bench.deliver(0, due_in_ms=900)
    bench.deliver(1, due_in_ms=300)
    assert bench.core.release_us() == bench.clock.now_us() + 300_000


def test_rows_belong_to_the_core_of_their_shard(bench: Bench) -> None:
    bench.deliver(1)
    rows = bench.core.take(1)
    assert rows is not None
    owner = bench.core.owner(rows)
    assert owner is not bench.core
    assert owner.stream.topic == shard_name("t", 1, SPREAD)


def test_an_error_of_one_shard_ends_the_consumer(bench: Bench) -> None:
    bench.transport.refuses = TopicUnknown("t")
    bench.channel(1).break_off(TopicUnknown("t"))
    with pytest.raises(TopicUnknown):
        bench.core.take(1)


def test_closing_closes_the_stream_of_every_shard(bench: Bench) -> None:
    bench.core.close()
    bench.core.close()
    assert [bench.channel(shard).is_closed for shard in range(SPREAD)] == [True, True]


def test_finishing_keeps_streams_whose_rows_are_not_settled(bench: Bench) -> None:
    bench.deliver(0)
    assert bench.taken_shard() == 0
    bench.core.finish()
    assert not bench.channel(0).is_closed


def test_a_topic_that_becomes_sharded_while_it_is_consumed_is_consumed_on() -> None:
    bench = Bench(spread=0)
    [whole] = bench.transport.consumes
    assert whole.stream.topic == "t"
    whole.break_off(Elsewhere("in shards", spread=SPREAD))
    bench.transport.wait_consumes(1 + SPREAD)
    bench.core.close()
    topics = {one.stream.topic for one in bench.transport.consumes}
    assert topics == {"t", *(shard_name("t", shard, SPREAD) for shard in range(SPREAD))}


def test_a_topic_served_as_a_whole_has_one_stream() -> None:
    bench = Bench(spread=0)
    now_us = bench.clock.now_us()
    bench.transport.consumes[0].deliver([now_us // 1000], broker_us=now_us)
    rows = bench.core.take(1)
    assert rows is not None
    assert bench.core.owner(rows) is bench.core
    bench.core.close()
    assert len(bench.transport.consumes) == 1
