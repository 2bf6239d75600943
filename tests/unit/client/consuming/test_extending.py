"""Leases of many small deliveries are extended together, by few frames; time is moved by hand."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import numpy as np
import pytest

from dejaqueue.client.consuming.clock_offset import ClockOffset
from dejaqueue.client.consuming.extending import ALONE_ROWS, Extender
from dejaqueue.client.consuming.holding import Lease
from dejaqueue.errors import TryLater
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.frames import Reply
from tests.unit.client.still_alarm import StillAlarm

START_MS = 1_000_000
LENGTH_MS = 300


class Bench:
    """An extender, and the broker that it asks."""

    def __init__(self) -> None:
        self.clock = VirtualClock(start_ms=START_MS)
        self.alarm = StillAlarm(self.clock)
        self.mutex = threading.Lock()
        self.asked: list[list[Lease]] = []
        self.is_there = True
        self.lost: set[int] = set()
        self.error: TryLater | None = None
        offset = ClockOffset(shared=VirtualClock())
        self.extender = Extender(self.mutex, self.clock, self.alarm, offset, self.ask)

    def ask(self, leases: list[Lease], lease_ms: int) -> Future[Reply] | None:
        self.asked.append(leases)
        if not self.is_there:
            return None
        assert lease_ms == LENGTH_MS
        statuses = np.array([3 * (lease.lease_id in self.lost) for lease in leases], np.uint8)
        answer: Future[Reply] = Future()
        answer.set_result(Reply(1, len(leases), statuses=statuses, error=self.error))
        return answer

    def add(self, lease_id: int, *, rows: int = 3, partition: int = 0) -> Lease:
        end_ms = self.clock.now_ms() + LENGTH_MS
        lease = Lease(partition, lease_id, rows, LENGTH_MS, end_ms, 1, rows_open=rows)
        with self.mutex:
            self.extender.add(lease)
        self.extender.plan()
        return lease

    def settle(self, lease: Lease) -> None:
        with self.mutex:
            self.extender.settled(lease, lease.rows)

    def advance(self, ms: int) -> None:
        for _ in range(ms):
            self.clock.advance(ms=1)
            self.alarm.run_due()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_leases_of_a_partition_go_together(bench: Bench) -> None:
    leases = [bench.add(number, partition=number % 2) for number in range(6)]
    bench.advance(199)
    assert bench.asked == []
    bench.advance(1)
    assert bench.asked == [leases[0::2], leases[1::2]]
    assert {lease.end_ms for lease in leases} == {START_MS + 200 + LENGTH_MS}


def test_a_large_delivery_goes_by_itself(bench: Bench) -> None:
    small, large, other = (bench.add(n, rows=rows) for n, rows in enumerate((1, ALONE_ROWS, 1)))
    bench.advance(200)
    assert bench.asked == [[large], [small, other]]


def test_leases_that_come_one_by_one_are_extended_a_few_times_each_in_few_frames(
    bench: Bench,
) -> None:
    leases = []
    for number in range(1_000):
        leases.append(bench.add(number))
        bench.advance(1)
    named = [lease.lease_id for asked in bench.asked for lease in asked]
    # From the first of them on a frame for each sixth of a lease; each lease is extended when
    # between half and a third of it is left.
    assert len(bench.asked) <= 1 + (1_000 - 200) // 50
    for lease in leases[:700]:
        assert 800 // LENGTH_MS <= 1 + named.count(lease.lease_id) <= 1_000 // 150 + 1
        assert lease.end_ms > bench.clock.now_ms() + 90


def test_a_lost_lease_is_not_extended_again_and_the_others_are(bench: Bench) -> None:
    leases = [bench.add(number) for number in range(3)]
    bench.lost = {1}
    bench.advance(401)
    assert [len(asked) for asked in bench.asked] == [3, 2]
    assert leases[1].end_ms == 0


def test_of_one_alone_the_broker_gives_a_status_for_each_message(bench: Bench) -> None:
    lease = bench.add(1)
    with_some_lost: Future[Reply] = Future()
    with_some_lost.set_result(Reply(1, 3, statuses=np.array([0, 3, 3], np.uint8)))
    bench.extender._extended([lease], 1_000_500, with_some_lost)
    assert lease.end_ms == 1_000_500
    lost: Future[Reply] = Future()
    lost.set_result(Reply(1, 1, statuses=np.array([3], np.uint8)))
    bench.extender._extended([lease], 1_000_900, lost)
    assert lease.end_ms == 0


@pytest.mark.parametrize("is_there", [False, True])
def test_it_is_tried_again_until_the_leases_end(bench: Bench, *, is_there: bool) -> None:
    leases = [bench.add(number) for number in range(3)]
    bench.is_there, bench.error = is_there, TryLater("not now")
    bench.advance(299)
    assert len(bench.asked) == 10  # every 10 ms of the last 100
    assert all(asked == leases for asked in bench.asked)
    bench.advance(200)
    assert len(bench.asked) == 10


def test_an_answer_that_comes_late_is_taken(bench: Bench) -> None:
    leases = [bench.add(number) for number in range(3)]
    bench.is_there = False
    bench.advance(225)
    bench.is_there = True
    bench.advance(10)
    assert {lease.end_ms for lease in leases} == {START_MS + 230 + LENGTH_MS}


def test_what_is_settled_or_closed_is_not_extended(bench: Bench) -> None:
    leases = [bench.add(number) for number in range(3)]
    bench.settle(leases[1])
    bench.advance(200)
    assert bench.asked == [[leases[0], leases[2]]]
    with bench.mutex:
        bench.extender.close()
    bench.advance(500)
    assert len(bench.asked) == 1
