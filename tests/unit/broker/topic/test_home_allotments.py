"""What shards may hold together is never over the limit: the home, the shards, and what goes wrong.

A simulation of the real home and the real queues, message by message: answers come late or never,
owners of shards and of the home die, old owners go on as if they had not been replaced. Not here:
real brokers (tests/cluster/test_spread_limits.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.topic.allotment_queue import AllotmentQueue, DurableBacklog, Waiter
from dejaqueue.broker.topic.home_allotments import HomeAllotments
from dejaqueue.broker.topic.homes import BACKLOG
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.model import Topic

SPREAD = 3
LIMIT = 60


class Owner:
    """An owner of one shard: the real queue, over a count of messages."""

    def __init__(self, world: World, shard: int, epoch: int, live: int) -> None:
        self.world, self.shard, self.epoch, self.live = world, shard, epoch, live
        self.refused = 0
        self.allotment = Allotment(lambda: Backlog(self.live, 0), is_shard=True)
        self.queue = AllotmentQueue(
            f"t={shard}-{SPREAD}",
            lambda: world.topic,
            self.allotment,
            self,  # type: ignore[arg-type]
            self._learn,
            lambda run: run(),
        )

    def _learn(self) -> Future[DurableBacklog]:
        return _done(DurableBacklog(self.epoch, Backlog(self.live, 0)))

    def ask(self, _shard: str, about: str, given: dict[str, Any]) -> Future[Any]:
        assert about == BACKLOG
        return self.world.to_home(self.shard, given)

    def want(self, rows: int) -> None:
        """A batch comes."""

        def send() -> None:
            part = self.allotment.part
            if self.world.owners[self.shard] is not self:
                return  # its journal is another one's
            if part is not None and self.live + rows <= part.count:
                self.live += rows
            else:
                self.refused += 1

        def refuse(_error: DejaQError) -> None:
            self.refused += 1

        self.queue.admit(Waiter(rows, 0, None, send, refuse))

    def done(self, rows: int) -> None:
        """Messages are acked."""
        if self.world.owners[self.shard] is self:
            self.live -= min(rows, self.live)


class World:
    """Owners, homes, and what is on its way between them."""

    def __init__(self, seed: int, *, faults: bool) -> None:
        self.dice = random.Random(seed)
        self.faults = faults
        self.topic = Topic("t", spread=SPREAD, partitions=SPREAD, max_backlog_count=LIMIT)
        self.on_way: list[Callable[[], None]] = []
        self.owners = [Owner(self, shard, 1, 0) for shard in range(SPREAD)]
        self.former = list(self.owners)
        self.home = self.new_home()

    def new_home(self) -> HomeAllotments:
        return HomeAllotments(SPREAD, lambda: self.topic, self.to_shard)

    def carry(self, run: Callable[[], None]) -> None:
        """Something is on its way, and arrives in any order, or never."""
        self.on_way.append(run)

    def step(self) -> None:
        """One thing arrives."""
        if self.on_way:
            self.on_way.pop(self.dice.randrange(len(self.on_way)))()

    def settle(self) -> None:
        """Everything arrives."""
        while self.on_way:
            self.step()

    def _is_lost(self) -> bool:
        return self.faults and self.dice.random() < 0.1

    def _answer(self, found: Future[Any], answer: Future[Any]) -> None:
        """An answer is on its way back, or lost: then it fails by time."""

        def arrive() -> None:
            if self._is_lost() or found.exception() is not None:
                answer.set_exception(Unavailable("no answer", 50))
            else:
                answer.set_result(found.result())

        self.carry(arrive)

    def to_home(self, shard: int, given: dict[str, Any]) -> Future[Any]:
        answer: Future[Any] = Future()

        def arrive() -> None:
            order = given["epoch"], given["serial"]
            has, wants = Backlog(*given["has"]), Backlog(*given["wants"])
            asked = self.home.ask(shard, order, has, wants)
            asked.add_done_callback(partial(self._answer, answer=answer))

        self.carry(arrive)
        return answer

    def to_shard(self, shard: int, by: Backlog) -> Future[Any]:
        answer: Future[Any] = Future()
        # Now and then the one that was asked is not the owner any more, and does not know.
        is_behind = self.faults and self.dice.random() < 0.2
        owner = self.former[shard] if is_behind else self.owners[shard]

        def arrive() -> None:
            found: Future[Any] = Future()
            if self.owners[shard] is owner:
                part = owner.queue.give_back(by).result()
                found.set_result({"count": part.count, "byte_count": part.byte_count})
            else:  # it looks whether it is the owner still
                found.set_exception(Unavailable("it is another one's", 50))
            self._answer(found, answer)

        self.carry(arrive)
        return answer

    def replace_owner(self) -> None:
        """Another broker opens a shard, and finds what is in its journal."""
        before = self.dice.choice(self.owners)
        self.former[before.shard] = before
        self.owners[before.shard] = Owner(self, before.shard, before.epoch + 1, before.live)

    def check(self) -> None:
        live = [owner.live for owner in self.owners]
        parts = [owner.allotment.part for owner in self.owners]
        assert sum(live) <= LIMIT, live
        assert sum(part.count for part in parts if part is not None) <= LIMIT, parts


def _done(result: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(result)
    return done


@pytest.mark.parametrize("seed", range(150))
def test_shards_never_hold_more_than_the_limit_together__whatever_is_lost(seed: int) -> None:
    world = World(seed, faults=True)
    for _ in range(400):
        chance = world.dice.random()
        if chance < 0.3:
            world.dice.choice(world.owners).want(world.dice.randint(1, 25))
        elif chance < 0.4:
            world.dice.choice(world.owners).done(world.dice.randint(1, 25))
        elif chance < 0.42:
            world.replace_owner()
        elif chance < 0.43:
            world.home = world.new_home()
        else:
            world.step()
        world.check()
    world.settle()
    world.check()


@pytest.mark.parametrize("seed", range(20))
def test_room_goes_where_it_is_wanted(seed: int) -> None:
    world = World(seed, faults=False)
    owners = world.owners
    for owner in owners:
        owner.want(10)
        world.settle()
    owners[0].want(LIMIT - 30)
    world.settle()
    assert [owner.live for owner in owners] == [LIMIT - 20, 10, 10]
    owners[1].want(1)
    world.settle()
    assert owners[1].refused == 1
    owners[0].done(25)
    owners[2].want(25)
    world.settle()
    assert [owner.live for owner in owners] == [LIMIT - 45, 10, 35]
    world.check()


def test_a_new_home_gives_nothing_before_it_knows_what_all_have() -> None:
    world = World(1, faults=False)
    for owner in world.owners:
        owner.want(10)
        world.settle()
    home = HomeAllotments(
        SPREAD, lambda: world.topic, lambda *_: _failed(Unavailable("between two owners", 50))
    )
    asked = home.ask(0, (9, 1), Backlog(12, 0), Backlog(1, 0))
    with pytest.raises(Unavailable):
        asked.result(0)


def test_a_limit_of_bytes_is_kept_beside_one_of_messages() -> None:
    topic = Topic("t", spread=2, partitions=2, max_backlog_bytes=100)
    nothing = {"count": 0, "byte_count": 0}
    home = HomeAllotments(2, lambda: topic, lambda *_: _done(nothing))
    told = home.ask(0, (1, 1), Backlog(), Backlog(5, 70)).result(0)
    assert 70 <= told["byte_count"] <= 100
    told = home.ask(1, (1, 1), Backlog(), Backlog(5, 70)).result(0)
    assert told["byte_count"] <= 100


def _failed(error: DejaQError) -> Future[Any]:
    failed: Future[Any] = Future()
    failed.set_exception(error)
    return failed
