"""A partition's life: read, stepped, failed, read again, closed. Its steps: tests/rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.partition.partition import (
    CRON_RETRY_US,
    RETRY_US,
    UNREAD_RETRY_US,
    Duties,
    Partition,
)
from dejaqueue.broker.partition.requests import ChangeRequest, LookRequest
from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.maintenance import Maintenance
from dejaqueue.broker.shard.opening import JournalDoor
from dejaqueue.broker.shard.unread_entries import UnreadEntries
from dejaqueue.engine.commands import ForgetTexts
from dejaqueue.errors import (
    DejaQError,
    Fenced,
    InternalError,
    JournalDamaged,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic, TopicKind
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.frames import Reply
from tests.unit.broker.cores import journals


class Quiet:
    """Nobody wants room."""

    wanted_count = 0

    def want(self) -> None:
        raise AssertionError("room was wanted")


class Owner:
    """An ownership that the test gives and takes."""

    def __init__(self) -> None:
        self.error: DejaQError | None = None
        self.fences = 0

    def refusal(self) -> DejaQError | None:
        return self.error

    def fenced(self) -> None:
        self.fences += 1

    def end(self) -> None:
        raise AssertionError("a partition does not let go of its topic")


class Broken(Chore):
    """Raises what the test says, once."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.loads = self.ends = 0

    def loaded(self, core: PartitionCore) -> None:
        self.loads += 1

    def step(self, core: PartitionCore) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def closed(self) -> None:
        self.ends += 1


class World:
    """A partition, and hands on what it depends on."""

    def __init__(self, writer: Executor, topic: Topic | None = None) -> None:
        self.topic = topic or Topic("t")
        self.clock = VirtualClock()
        self.owner, self.chore = Owner(), Broken()
        self._open = journals(self.topic)
        self.open: Callable[[], Journal] = self._open
        self.rings = 0
        self.replies: list[Reply] = []
        self.core = PartitionCore(lambda: self.topic, 0, self.clock, ring=self.ring)
        self.door = JournalDoor(lambda: self.open(), ownership=self.owner)
        self.committer = Committer("test")
        self.partition = Partition(
            self.core,
            self.door,
            self.committer,
            Dispatcher(10**12, lambda _number: True),
            Allotment(Backlog),
            Duties(Maintenance(writer, Quiet(), UnreadEntries()), chores=(self.chore,)),
        )

    def ring(self) -> None:
        self.rings += 1

    def ask(self) -> list[Reply]:
        """What a change that changes nothing is answered, by one step."""
        self.replies.clear()
        self.partition.put(ChangeRequest(lambda core: None, self.replies.append, 1))
        self.partition.step()
        return self.replies


@pytest.fixture
def writer() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def world(writer: Executor) -> World:
    return World(writer)


def fails(error: Exception) -> Callable[[], Journal]:
    def open_journal() -> Journal:
        raise error

    return open_journal


def test_it_is_read_when_it_is_first_stepped(world: World) -> None:
    with pytest.raises(Unavailable):
        world.partition.check_loaded()
    [reply] = world.ask()
    assert reply.error is None
    assert (world.partition.loaded, world.chore.loads, world.core.position) == (True, 1, 1)
    world.partition.check_loaded()


def test_what_cannot_be_read_is_said_to_who_waits__and_tried_for_the_next(world: World) -> None:
    world.open = fails(JournalDamaged("a bit flipped"))
    [reply] = world.ask()
    assert isinstance(reply.error, JournalDamaged)
    with pytest.raises(JournalDamaged):
        world.partition.check_loaded()
    world.open = fails(KeyError("slab"))
    [reply] = world.ask()
    assert isinstance(reply.error, InternalError)
    world.open = world._open
    assert world.ask()[0].error is None


def test_a_step_that_breaks_off_answers_and_reads_again(world: World) -> None:
    world.ask()
    world.chore.error = KeyError("our bug")
    [reply] = world.ask()
    assert isinstance(reply.error, InternalError)
    assert (world.partition.loaded, world.partition.failure) == (False, None)
    assert world.ask()[0].error is None
    assert world.chore.loads == 2


def test_a_group_that_waits_for_the_append_before_is_appended_when_that_has_landed(
    world: World,
) -> None:
    world.ask()
    commits, now_us = world.core.commits, world.clock.now_us()

    def forget(core: PartitionCore) -> None:
        core.apply(ForgetTexts(core.now_ms()))

    for number in range(2):
        world.partition.put(ChangeRequest(forget, world.replies.append, number))
        world.partition.step(busy=True)
    assert commits.in_flight
    assert len(commits.group.entries) == 1, "the second waits for the first"
    world.committer.start()
    commits.wait_landed()
    assert world.partition.go_on(is_due=False, busy=False) == now_us
    assert world.partition.wants_step(now_us), "or its worker would leave it alone"
    world.partition.step()
    assert [reply.number for reply in world.replies] == [1, 0, 1]
    world.committer.stop()


def test_a_sync_that_failed_is_final(world: World) -> None:
    world.ask()
    world.chore.error = Unavailable("fsync: EIO")
    world.ask()
    assert isinstance(world.partition.failure, Unavailable)
    assert isinstance(world.ask()[0].error, Unavailable)
    assert world.partition.step() is None
    assert world.chore.loads == 1


def test_a_sync_that_failed_is_final_where_it_is_met_on_reading__and_is_told(world: World) -> None:
    error = Unavailable("fsync: EIO")
    error.is_final = True
    world.open = fails(error)
    assert world.ask()[0].error is error
    assert world.partition.failure is error, "what health tells of"
    world.open = world._open
    assert world.ask()[0].error is error


def test_a_full_disk_is_not(world: World) -> None:
    world.ask()
    world.chore.error = ResourceExhausted("the disk is full", 1_000)
    world.ask()
    assert world.partition.failure is None
    assert world.ask()[0].error is None


def test_who_was_fenced_tells_the_owner_and_asks_it_before_it_reads_again(world: World) -> None:
    world.ask()
    world.chore.error = Fenced("another owner")
    world.ask()
    assert world.owner.fences == 1
    world.owner.error = Unavailable("it is another's")
    assert world.ask()[0].error is world.owner.error
    assert world.chore.loads == 1
    world.owner.error = None
    assert world.ask()[0].error is None


def test_it_is_tried_again_by_itself__if_its_journal_may_come_back(world: World) -> None:
    world.open = fails(Unavailable("the server is away"))
    assert world.partition.step() is None
    world.door.comes_back = True
    assert world.partition.step() == world.clock.now_us() + RETRY_US


def test_after_a_failure_who_waits_is_served_sooner__and_a_cron_topic_goes_on(
    writer: Executor,
) -> None:
    cron = World(writer, Topic("t", kind=TopicKind.CRON))
    cron.ask()
    cron.chore.error = KeyError("our bug")
    assert cron.partition.step() == cron.clock.now_us() + CRON_RETRY_US
    cron.ask()
    cron.chore.error = KeyError("our bug")
    cron.partition.inbox.put(LookRequest(lambda core: again(cron)))
    assert cron.partition.step() == cron.clock.now_us() + UNREAD_RETRY_US


def again(world: World) -> None:
    """One more request comes while the step breaks off."""
    world.partition.put(ChangeRequest(lambda core: None, world.replies.append, 2))
    raise KeyError("our bug")


def test_what_is_read_beside_the_worker_rings_when_it_is_there(world: World) -> None:
    submitted: list[Callable[[], Any]] = []

    class Later(ThreadPoolExecutor):
        def submit(self, *call: Any) -> Any:  # type: ignore[override]
            future: Any = super().submit(*call)
            submitted.append(future.result)
            return future

    with Later(1) as executor:
        world.door.executor = executor
        assert world.ask() == []
        assert world.partition.opening is not None
        submitted[0]()
    assert world.rings == 1
    world.partition.step()
    assert [reply.error for reply in world.replies] == [None]


def test_a_closed_partition_answers_and_opens_nothing(world: World) -> None:
    world.ask()
    world.partition.put(ChangeRequest(lambda core: None, world.replies.append, 2))
    world.partition.close()
    assert isinstance(world.replies[-1].error, Unavailable)
    assert (world.chore.ends, world.door.is_closed) == (1, True)
    world.open = fails(AssertionError("opened"))
    assert isinstance(world.ask()[0].error, Unavailable)
    with pytest.raises(Unavailable):
        world.partition.check_loaded()


def test_settings_that_change_are_told_to_the_engine_once(world: World) -> None:
    world.ask()
    world.topic = Topic("t", max_attempts=7)
    world.ask()
    position = world.core.position
    assert world.core.engine.rules.max_attempts == 7
    world.ask()
    assert world.core.position == position
