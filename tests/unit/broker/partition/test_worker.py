"""A worker steps who was rung or is due, each once a turn. Threads: tests/integration."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.partition.worker import TURN_US_MAX, PartitionWorker
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.journal.interface import Append
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS


class Stepped:
    """A partition that notes its steps."""

    number = 0
    door_to_read = None

    def __init__(self, *next_us: int | None) -> None:
        self.core = SimpleNamespace(topic=lambda: SimpleNamespace(name="t"))
        self.next_us = list(next_us)
        self.busy: list[bool] = []
        self.went_on: list[bool] = []
        self.asked: list[object] = []
        self.later_us: int | None = None
        self.is_moot = False
        self.turned_away: list[DejaQError] = []
        self.inbox = SimpleNamespace(turn_away=self.turned_away.append)

    def wants_step(self, now_us: int) -> bool:
        return not self.is_moot

    def put(self, request: object) -> None:
        self.asked.append(request)

    def step(self, *, busy: bool) -> int | None:
        self.busy.append(busy)
        return self.next_us.pop(0) if self.next_us else None

    def go_on(self, *, is_due: bool, busy: bool) -> int | None:
        self.went_on.append(is_due)
        return self.step(busy=busy) if is_due else None


class Appending(Stepped):
    """A partition whose steps append to a log that it shares."""

    def __init__(self, worker: PartitionWorker, log: Any) -> None:
        super().__init__()
        self._worker, self._journal = worker, SimpleNamespace(log=log)

    def step(self, *, busy: bool) -> int | None:
        super().step(busy=busy)
        append = Append(self._journal, [], 0, 1, lambda _: self._worker.landed(self))  # type: ignore[arg-type]
        self._worker.committer.submit(append)
        return None


class Log:
    """A log that notes how many appends came together."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def append_all(self, appends: Sequence[Append]) -> None:
        self.counts.append(len(appends))


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


def test_what_several_do_in_a_turn_is_appended_together__and_each_goes_on(
    worker: PartitionWorker,
) -> None:
    log = Log()
    partitions: list[Any] = [Appending(worker, log) for _ in range(3)]
    for partition in partitions:
        worker.ring(partition)
    assert worker.turn(busy=False)
    assert log.counts == [3]
    assert [one.went_on for one in partitions] == [[False]] * 3
    assert not worker.turn(busy=True)


def test_a_long_turn_is_appended_in_parts(worker: PartitionWorker, clock: VirtualClock) -> None:
    log = Log()
    partitions: list[Any] = [Appending(worker, log) for _ in range(4)]
    step = partitions[1].step

    def takes_long(*, busy: bool) -> None:
        step(busy=busy)
        clock.advance(ms=TURN_US_MAX // 1_000)

    partitions[1].step = takes_long
    for partition in partitions:
        worker.ring(partition)
    assert worker.turn(busy=False)
    assert log.counts == [2, 2]


def test_who_is_busy_leaves_the_append_to_the_committer(clock: VirtualClock) -> None:
    worker, log = PartitionWorker("test", clock, Committer("test")), Log()
    partitions: list[Any] = [Appending(worker, log) for _ in range(2)]
    for partition in partitions:
        worker.ring(partition)
    assert worker.turn(busy=True)
    assert log.counts == []
    worker.committer.start()
    worker.committer.stop()
    assert log.counts == [2]
    worker.ring(partitions[0])
    assert worker.turn(busy=False)
    assert [one.went_on for one in partitions] == [[True, False], [False]]


def test_who_is_lent_does_not_go_on_here(worker: PartitionWorker) -> None:
    partition: Any = Stepped()
    worker.lend(partition)
    worker.landed(partition)
    assert not worker.turn(busy=False)
    assert partition.went_on == []


def test_who_asks_a_broker_that_has_stopped_is_answered() -> None:
    """An archiver that looked at partitions meanwhile waited for a minute, and the end for it."""
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    runtime = broker.runtime("t")
    assert runtime.look(0, lambda core: core.number).result(PATIENCE_SECONDS) == 0
    broker.stop()
    with pytest.raises(Unavailable):
        runtime.look(0, lambda core: core.number).result(PATIENCE_SECONDS)


def test_what_is_left_when_a_worker_ends_is_turned_away() -> None:
    clock = VirtualClock()
    worker = PartitionWorker("w", clock, Committer("c"))
    early, late = Stepped(), Stepped()
    worker.submit(early, object())  # type: ignore[arg-type]
    assert early.turned_away == []
    worker.stop()
    worker.submit(late, object())  # type: ignore[arg-type]
    assert [len(one.turned_away) for one in (early, late)] == [1, 1]
