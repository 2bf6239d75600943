"""The consumer's core: credit, clock, leases, reopening; time is moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dejaqueue.client.connection_watch import ConnectionWatch
from dejaqueue.client.consuming.consume_core import (
    PING_MS,
    PINGS_EARLY_MS,
    ConsumeCore,
)
from dejaqueue.client.consuming.consume_settings import ConsumeSettings
from dejaqueue.client.consuming.settle_batches import ACKED
from dejaqueue.client.link import WriteLink
from dejaqueue.errors import TopicUnknown, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Reply, SettleOp
from tests.answers import listed
from tests.unit.client.fake_transport import SECONDS_MAX, FakeConsume, FakeTransport, ok
from tests.unit.client.still_alarm import StillAlarm

START_MS = 1_000_000
AHEAD_US = 7_000_000
"""The broker's clock less the client's."""


class Bench:
    """A consumer whose clock, broker and alarm the test moves."""

    def __init__(
        self,
        *,
        prefetch: int = 100,
        auto_extend: bool = True,
        rows_max: int | None = None,
        shared: bool = False,
        until_settled: bool = False,
    ) -> None:
        self.clock = VirtualClock(start_ms=START_MS)
        self.alarm = StillAlarm(self.clock)
        self.transport = FakeTransport(ok, shares_clock=shared)
        self.links: list[WriteStream] = []
        self.core = ConsumeCore(
            self.transport,
            ConsumeStream("t"),
            ConsumeSettings(prefetch, auto_extend, 1_000, rows_max, until_settled),
            self.clock,
            self.alarm,
            self.link_for,
            ConnectionWatch("", self.clock),
        )
        self.core.open()

    def link_for(self, stream: WriteStream) -> WriteLink:
        self.links.append(stream)
        return WriteLink(self.transport, stream, self.clock, retry_ms_max=1_000)

    @property
    def channel(self) -> FakeConsume:
        return self.transport.consumes[-1]

    def broker_us(self) -> int:
        return self.clock.now_us() + AHEAD_US

    def sync_clocks(self) -> None:
        """A ping that took no time."""
        self.core._send_ping(self.channel)
        self.channel.pong(self.broker_us())

    def advance(self, ms: int) -> None:
        """Time passes; the broker answers pings at once."""
        for _ in range(ms):
            self.clock.advance(ms=1)
            seen = len(self.channel.pings)
            self.alarm.run_due()
            for index in range(seen, len(self.channel.pings)):
                self.channel.pong(self.broker_us(), index)

    def deliver(self, *dues_in_ms: int, **values: Any) -> None:
        now_ms = self.broker_us() // 1000
        dues_ms = [now_ms + due for due in dues_in_ms]
        self.channel.deliver(dues_ms, broker_us=self.broker_us(), **values)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.sync_clocks()
    yield made
    made.core.close()


def test_opening_grants_credit_and_pings_twice() -> None:
    bench = Bench(prefetch=40)
    assert bench.channel.credits == [40]
    assert len(bench.channel.pings) == 2
    assert bench.channel.pings[0].uncertainty_us == -1


def test_pings_follow_fast_at_first_and_report_what_is_known(bench: Bench) -> None:
    before = len(bench.channel.pings)
    bench.advance(sum(PINGS_EARLY_MS))
    assert len(bench.channel.pings) == before + len(PINGS_EARLY_MS)
    bench.advance(3 * PING_MS)
    assert len(bench.channel.pings) == before + len(PINGS_EARLY_MS) + 3
    last = bench.channel.pings[-1]
    assert abs(last.offset_us - AHEAD_US) < 1_000
    assert 0 <= last.uncertainty_us < 1_000


def test_pings_report_lateness_once_and_closing_reports_the_rest() -> None:
    bench = Bench()
    bench.core.lateness.add_many(np.array([100, 3_000, 100]))
    bench.sync_clocks()
    report = bench.channel.pings[-1].report
    assert report is not None
    assert (report.sum_us, sum(report.counts)) == (3_200, 3)
    bench.sync_clocks()
    assert bench.channel.pings[-1].report is None
    bench.core.lateness.add(700)
    pings = len(bench.channel.pings)
    bench.core.close()
    last = bench.channel.pings[-1].report
    assert last is not None
    assert (last.sum_us, last.counts, len(bench.channel.pings)) == (700, (1,), pings + 1)


def test_rows_wait_for_their_time_by_the_brokers_clock(bench: Bench) -> None:
    bench.deliver(0, 10, 20)
    first = bench.core.take(100)
    assert first is not None
    assert listed(first.ids) == [0]
    assert bench.core.take(100) is None
    release_us = bench.core.release_us()
    assert release_us is not None
    assert 0 <= release_us - (bench.clock.now_us() + 10_000) < 1_000
    bench.advance(9)
    assert bench.core.take(100) is None
    bench.advance(2)
    second = bench.core.take(100)
    assert second is not None
    assert listed(second.ids) == [1]
    assert bench.core.late_us(second.dues_ms).tolist()[0] < 1_500


def test_without_a_pong_only_what_is_surely_due_comes() -> None:
    bench = Bench()
    bench.deliver(-5, 3)
    found = bench.core.take(100)
    assert found is not None
    assert listed(found.ids) == [0]
    assert bench.core.take(100) is None


def test_a_shared_clock_needs_no_pong() -> None:
    bench = Bench(shared=True)
    now_ms = bench.clock.now_ms()
    bench.channel.deliver([now_ms + 1], broker_us=bench.clock.now_us())
    assert bench.core.take(1) is None
    assert bench.core.release_us() == (now_ms + 1) * 1000
    bench.clock.advance(ms=1)
    assert bench.core.take(1) is not None


def test_credit_comes_back_in_lumps(bench: Bench) -> None:
    bench.deliver(*[0] * 60)
    for _ in range(4):
        bench.core.take(6)
    assert bench.channel.credits == [100]
    bench.core.take(6)
    assert bench.channel.credits == [100, 30]


def test_no_more_is_asked_for_than_is_wanted() -> None:
    bench = Bench(prefetch=10, rows_max=12)
    bench.sync_clocks()
    assert bench.channel.credits == [10]
    bench.deliver(*[0] * 10)
    bench.core.take(10)
    assert bench.channel.credits == [10, 2]
    bench.deliver(0, 0, lease_id=2, first_id=10)
    bench.core.take(10)
    assert bench.channel.credits == [10, 2]


def test_rows_that_came_to_nothing_are_asked_for_again() -> None:
    bench = Bench(prefetch=1_000, rows_max=2, auto_extend=False)
    bench.sync_clocks()
    bench.deliver(50, 50, lease_ms=20)
    bench.advance(60)
    assert bench.core.take(10) is None  # their lease had ended
    assert bench.channel.credits == [2, 2]
    bench.core.close()


def test_leases_are_extended_in_their_last_third_until_settled(bench: Bench) -> None:
    bench.deliver(0, 0, lease_id=5, lease_ms=300)
    taken = bench.core.take(10)
    assert taken is not None
    bench.advance(198)
    assert bench.channel.settles == []
    bench.advance(4)
    (extend,) = bench.channel.settles
    assert (extend.op, extend.lease_id, extend.argument_ms) == (SettleOp.EXTEND, 5, 300)
    bench.advance(210)
    assert len(bench.channel.settles) == 2
    bench.core.settle(SettleOp.ACK, taken)
    bench.advance(1_000)
    assert [settle.op for settle in bench.channel.settles[2:]] == [SettleOp.ACK]


def test_held_rows_are_extended_too_and_not_without_auto_extend() -> None:
    for auto_extend in (True, False):
        bench = Bench(auto_extend=auto_extend)
        bench.sync_clocks()
        bench.deliver(900, lease_ms=300)
        bench.advance(1_000)
        found = bench.core.take(1)
        assert (found is not None) == auto_extend
        extends = [s for s in bench.channel.settles if s.op is SettleOp.EXTEND]
        assert bool(extends) == auto_extend
        bench.core.close()


def test_a_lost_lease_is_not_handed_over(bench: Bench) -> None:
    import numpy as np

    bench.channel.answers_settles = False
    bench.deliver(290, lease_ms=300)
    bench.advance(205)
    lost = Reply(1, 1, statuses=np.array([3], dtype=np.uint8))
    bench.channel.futures[0].set_result(lost)
    bench.advance(90)
    assert bench.core.take(1) is None


def test_a_whole_delivery_is_settled_by_its_lease_and_a_part_by_its_rows(bench: Bench) -> None:
    bench.deliver(0, 0, lease_id=5)
    whole = bench.core.take(10)
    assert whole is not None
    reply = bench.core.settle(SettleOp.NACK, whole, 70).result(SECONDS_MAX)
    assert reply.all_statuses().tolist() == [0, 0]
    bench.deliver(0, 0, lease_id=6, first_id=20, attempt=3)
    part = bench.core.take(1)
    assert part is not None
    bench.core.settle(SettleOp.ACK, part)
    nack, ack = bench.channel.settles
    assert (nack.op, nack.lease_id, nack.argument_ms) == (SettleOp.NACK, 5, 70)
    assert (ack.lease_id, listed(ack.ids), listed(ack.attempts)) == (-1, [20], [3])


def test_a_whole_delivery_that_was_lost_has_a_status_for_each_row(bench: Bench) -> None:
    bench.channel.answers_settles = False
    bench.deliver(0, 0, 0, lease_id=5)
    whole = bench.core.take(10)
    assert whole is not None
    answer = bench.core.settle(SettleOp.ACK, whole)
    lost = Reply(1, 1, statuses=np.array([3], dtype=np.uint8))
    bench.channel.futures[0].set_result(lost)
    reply = answer.result(SECONDS_MAX)
    assert (reply.rows, reply.all_statuses().tolist()) == (3, [3, 3, 3])


def test_acks_nobody_waits_for_travel_together(bench: Bench) -> None:
    bench.deliver(*[0] * 5)
    taken = bench.core.take(10)
    assert taken is not None
    for message_id in range(5):
        bench.core.settle_together(ACKED, taken.lease, message_id, 1)
    assert bench.channel.settles == []
    bench.advance(2)
    (ack,) = bench.channel.settles
    assert listed(ack.ids) == [0, 1, 2, 3, 4]
    bench.advance(30_000)
    assert len(bench.channel.settles) == 1  # and their lease is not extended


def test_a_broken_stream_is_opened_again_and_grants_what_is_missing(bench: Bench) -> None:
    bench.deliver(0, 500)
    taken = bench.core.take(10)
    assert taken is not None
    bench.channel.break_off()
    again = bench.transport.wait_consumes(2)
    while not again.credits:
        threading.Event().wait(0.001)
    assert again.credits == [99]  # one row is still held
    bench.sync_clocks()
    bench.core.settle(SettleOp.ACK, taken)
    again.wait_settles(1)
    assert listed(again.settles[0].ids) == [0]  # by row: the lease came on another stream
    bench.advance(501)
    held = bench.core.take(10)
    assert held is not None
    assert listed(held.ids) == [1]


def test_what_is_delivered_again_is_not_handed_over_twice(bench: Bench) -> None:
    bench.deliver(500)
    bench.channel.break_off()
    bench.transport.wait_consumes(2)
    bench.sync_clocks()
    bench.deliver(400, lease_id=9, attempt=2)
    bench.advance(600)
    found = bench.core.take(10)
    assert found is not None
    assert listed(found.attempts) == [2]
    assert bench.core.take(10) is None


def test_the_clock_of_the_broker_before_says_nothing_of_the_next_one(bench: Bench) -> None:
    before, hour_us = bench.channel, 3_600_000_000
    before.break_off()
    bench.transport.wait_consumes(2)
    before.deliver([], broker_us=bench.broker_us() + hour_us)  # was on its way
    bench.deliver(-5, 400)
    found = bench.core.take(10)
    assert found is not None
    assert listed(found.ids) == [0]
    assert bench.core.take(10) is None


def test_a_settle_without_a_stream_goes_another_way(bench: Bench) -> None:
    bench.deliver(0, 0, attempt=4)
    taken = bench.core.take(10)
    assert taken is not None
    bench.channel.is_broken = True
    reply = bench.core.settle(SettleOp.NACK, taken, 30)
    assert reply.result(SECONDS_MAX).rows == 2
    assert bench.links == [WriteStream("t", "nack", argument_ms=30)]
    _, batch, _ = bench.transport.writes[0].sent[0]
    assert batch.to_pydict() == {"id": [0, 1], "attempts": [4, 4]}


def test_a_settle_that_finds_the_client_closed_is_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(stream: WriteStream) -> WriteLink:
        raise Unavailable("the client is closed")

    bench.deliver(0)
    taken = bench.core.take(1)
    assert taken is not None
    bench.channel.answers_settles = False
    answer = bench.core.settle(SettleOp.ACK, taken)
    monkeypatch.setattr(bench.core._settling, "_link_for", closed)
    bench.channel.futures[-1].set_exception(Unavailable("the broker was killed"))
    with pytest.raises(Unavailable, match="closed"):
        answer.result(SECONDS_MAX)


def test_a_topic_that_is_gone_ends_the_consumer(bench: Bench) -> None:
    bench.deliver(0)
    bench.channel.break_off(TopicUnknown("t"))
    assert bench.core.take(1) is not None
    with pytest.raises(TopicUnknown):
        bench.core.take(1)
    assert bench.core.is_over


def test_an_error_behind_surfaces_at_the_next_call(bench: Bench) -> None:
    bench.deliver(0)
    taken = bench.core.take(1)
    assert taken is not None
    bench.channel.answers_settles = False
    bench.core.settle_behind(SettleOp.ACK, taken)
    error = TopicUnknown("t")
    bench.channel.futures[-1].set_exception(error)
    with pytest.raises(TopicUnknown):
        bench.core.take(1)
    assert bench.core.take(1) is None


def test_a_silent_broker_is_left(bench: Bench) -> None:
    channel = bench.channel
    for _ in range(20):
        bench.clock.advance(ms=1_000)
        bench.alarm.run_due()
        if len(bench.transport.consumes) > 1:
            break
    assert bench.transport.wait_consumes(2) is not channel
    while not channel.is_closed:
        threading.Event().wait(0.001)


def test_closing_gives_back_what_was_not_handed_over_but_not_early(bench: Bench) -> None:
    bench.deliver(0, 15, 25)
    assert bench.core.take(1) is not None
    bench.core.close()
    bench.core.close()
    (nack,) = bench.channel.settles
    assert (nack.op, listed(nack.ids)) == (SettleOp.NACK, [1, 2])
    assert 25 <= nack.argument_ms <= 26
    assert bench.channel.is_closed
    assert bench.core.is_over


def test_who_finishes_with_nothing_open_gives_back_what_it_held(bench: Bench) -> None:
    """Or the broker would, which knows less of when it is due."""
    bench.deliver(25)
    bench.core.finish()
    (nack,) = bench.channel.settles
    assert (nack.op, listed(nack.ids)) == (SettleOp.NACK, [0])
    assert 25 <= nack.argument_ms <= 26
    assert bench.channel.is_closed


def released(bench: Bench, count: int = 1) -> list[tuple[list[int], int]]:
    """What was given back apart from the consumer's stream: ids, and after how many ms."""
    found = []
    for number in range(1, count + 1):
        write = bench.transport.wait_writes(number)
        write.wait_for(1)
        assert (write.stream.op, write.stream.released) == ("nack", True)
        [(_, batch, _)] = write.sent
        found.append((batch.column("id").to_pylist(), write.stream.argument_ms))
    return sorted(found)  # threads open the streams


def test_who_closes_while_the_topic_moves_gives_back_where_it_is_now(bench: Bench) -> None:
    """The broker could not: what was handed over, what was held, and what came since."""
    bench.deliver(0, 0)
    bench.deliver(0, 20, lease_id=2, first_id=7)
    taken = bench.core.take(2)
    assert taken is not None
    bench.core.settle(SettleOp.ACK, taken)
    assert bench.core.take(1) is not None
    channel = bench.channel
    close = channel.close

    def comes_late() -> bool:
        bench.deliver(0, lease_id=3, first_id=9)
        channel.is_whole = False
        return close()

    channel.close = comes_late  # type: ignore[method-assign]
    bench.core.close()
    others, held = released(bench, 2)
    assert held[0] == [8]
    assert others[0] == [7, 8, 9]
    assert 20 <= held[1] == others[1] <= 21  # not early


def test_who_closes_without_a_stream_gives_back_where_the_topic_is_now(bench: Bench) -> None:
    bench.deliver(0, 0)
    assert bench.core.take(1) is not None
    bench.transport.refuses = Unavailable("nobody has it yet")
    bench.channel.break_off()
    bench.transport.refuses = None
    bench.core._channel = None
    bench.core._generation += 1  # as if it were being opened anew
    bench.core.close()
    assert [ids for ids, _ in released(bench, 2)] == [[0, 1], [1]]


def test_what_came_by_a_stream_before_is_given_back_by_the_present_one(bench: Bench) -> None:
    """The broker that has the topic now does not know that this consumer has it."""
    bench.deliver(0)
    assert bench.core.take(1) is not None
    bench.channel.break_off()
    channel = bench.transport.wait_consumes(2)
    bench.deliver(0, lease_id=2, first_id=5)
    bench.core.close()
    assert [(one.op, listed(one.ids)) for one in channel.settles] == [
        (SettleOp.NACK, [5]),
        (SettleOp.NACK, [0]),
    ]
    assert bench.transport.writes == []


def test_nobody_waits_long_for_a_broker_to_give_back_to(bench: Bench) -> None:
    bench.deliver(0)
    bench.transport.refuses = Unavailable("nobody there")
    bench.channel.is_whole = False
    closing = threading.Thread(target=bench.core.close)
    closing.start()
    closing.join(SECONDS_MAX)
    assert not closing.is_alive()


def test_a_finished_consumer_can_still_settle_and_then_closes(bench: Bench) -> None:
    bench.deliver(0, 0)
    taken = bench.core.take(10)
    assert taken is not None
    bench.core.finish()
    assert bench.channel.credits[-1] == 0
    bench.deliver(0, lease_id=2, first_id=7)  # was on its way
    assert bench.channel.settles[-1].op is SettleOp.NACK
    assert listed(bench.channel.settles[-1].ids) == [7]
    assert not bench.channel.is_closed
    bench.core.settle(SettleOp.ACK, taken)
    while not bench.channel.is_closed:
        threading.Event().wait(0.001)


def test_a_finished_consumer_with_nothing_open_closes_at_once(bench: Bench) -> None:
    bench.core.finish()
    assert bench.channel.is_closed


def test_no_broker_in_time() -> None:
    clock = VirtualClock(start_ms=START_MS)
    transport = FakeTransport()
    transport.refuses = Unavailable("nobody there")
    core = ConsumeCore(
        transport,
        ConsumeStream("t"),
        ConsumeSettings(10, True, 0),
        clock,
        StillAlarm(clock),
        lambda stream: pytest.fail(str(stream)),
        ConnectionWatch("", clock),
    )
    core.open()
    with pytest.raises(Unavailable, match="nobody there"):
        core.take(1)
