"""A worker steps who was rung or is due, each once a turn. Threads: tests/integration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.testing.virtual_clock import VirtualClock


class Stepped:
    """A partition that notes its steps."""

    number = 0

    def __init__(self, *next_us: int | None) -> None:
        self.core = SimpleNamespace(topic=lambda: SimpleNamespace(name="t"))
        self.next_us = list(next_us)
        self.busy: list[bool] = []
        self.asked: list[object] = []
        self.later_us: int | None = None
        self.is_moot = False

    def wants_step(self, now_us: int) -> bool:
        return not self.is_moot

    def put(self, request: object) -> None:
        self.asked.append(request)

    def step(self, *, busy: bool) -> int | None:
        self.busy.append(busy)
        return self.next_us.pop(0) if self.next_us else None


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def worker(clock: VirtualClock) -> PartitionWorker:
    return PartitionWorker("test", clock, Committer("test"))


def test_who_is_rung_twice_is_stepped_once(worker: PartitionWorker) -> None:
    partition: Any = Stepped()
    worker.ring(partition)
    worker.ring(partition)
    assert worker.turn(busy=False)
    assert partition.busy == [False]
    assert not worker.turn(busy=True)


def test_who_wants_it_is_stepped_when_its_time_comes(
    worker: PartitionWorker, clock: VirtualClock
) -> None:
    partition: Any = Stepped(clock.now_us() + 5_000, clock.now_us() + 9_000)
    worker.ring(partition)
    worker.turn(busy=False)
    assert worker.next_us == clock.now_us() + 5_000
    assert not worker.turn(busy=False)
    clock.advance(ms=5)
    assert worker.turn(busy=False)
    assert worker.next_us == clock.now_us() + 4_000


def test_what_came_about_meanwhile_takes_no_step(
    worker: PartitionWorker, clock: VirtualClock
) -> None:
    partition: Any = Stepped(clock.now_us() + 5_000)
    worker.ring(partition)
    worker.turn(busy=False)
    partition.is_moot, partition.later_us = True, clock.now_us() + 9_000
    clock.advance(ms=5)
    assert not worker.turn(busy=False)
    assert worker.next_us == clock.now_us() + 4_000
    worker.ring(partition)  # who is rung is stepped, whatever it wanted
    assert worker.turn(busy=False)


def test_an_older_plan_is_void(worker: PartitionWorker, clock: VirtualClock) -> None:
    partition: Any = Stepped(clock.now_us() + 5_000, None)
    worker.ring(partition)
    worker.turn(busy=False)
    worker.ring(partition)
    worker.turn(busy=False)  # it wants nothing any more
    clock.advance(ms=5)
    assert not worker.turn(busy=False)


def test_a_step_that_raises_holds_no_other(worker: PartitionWorker) -> None:
    broken: Any = Stepped()
    broken.step = lambda *, busy: 1 / 0
    fine: Any = Stepped()
    worker.ring(broken)
    worker.ring(fine)
    assert worker.turn(busy=False)
    assert fine.busy == [True]  # as one of several: what they do is appended together


def test_calls_run_between_steps__and_who_is_forgotten_is_stepped_no_more(
    worker: PartitionWorker, clock: VirtualClock
) -> None:
    partition: Any = Stepped(clock.now_us() + 5_000)
    worker.ring(partition)
    worker.turn(busy=False)
    worker.call(lambda: worker.forget(partition))
    clock.advance(ms=5)
    assert not worker.turn(busy=False)
    assert partition.busy == [False]


def test_a_request_is_put_and_rung(worker: PartitionWorker) -> None:
    partition: Any = Stepped()
    request: Any = object()
    worker.submit(partition, request)
    assert partition.asked == [request]
    assert worker.turn(busy=False)


def test_it_starts_and_stops__twice_is_fine(clock: VirtualClock) -> None:
    worker = PartitionWorker("test", clock, Committer("test"))
    partition: Any = Stepped()
    worker.start()
    assert worker.is_alive
    worker.ring(partition)
    worker.stop()
    worker.stop()
    assert partition.busy == [False]
    assert not worker.is_alive
