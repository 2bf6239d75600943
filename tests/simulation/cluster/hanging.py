"""Journals that hang: the server answers nothing about one of them for seconds.

Judged: meanwhile every other partition of a broker that lives answers within a second. Nothing else
breaks meanwhile, but brokers may come and go, the owner of the journal may die, so that the next
one opens what hangs, and a topic that is there for that is deleted while one of its journals hangs,
so that its owner closes it.

Its dice are its own, as in membership.py.
"""

from __future__ import annotations

import random
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import pyarrow as pa

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.cluster.placement import hashed_slot
from dejaqueue.errors import DejaQError
from dejaqueue.model import Topic
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import WriteStream
from tests.checker.fault import Fault
from tests.simulation.cluster.faults import SECOND, ClusterFaults
from tests.simulation.cluster.machines import SLOTS, Cluster, ClusterMachine

HANG_US_MIN, HANG_US_MAX = 3 * SECOND, 7 * SECOND
ASK_US = SECOND // 5
ANSWER_US_MAX = SECOND
"""A partition reads itself in that time, too, by appends that take 50 ms each way."""

slot = partial(hashed_slot, slots=SLOTS)
NAME = "h"
"""The topic that is deleted."""
BESIDE = next(name for name in (f"h{n}" for n in range(1_000)) if slot(name) == slot(NAME))
"""A topic that always has the same owner, so that there is somebody to stand still."""
FAR_AHEAD_US = 3_600 * SECOND

Place = tuple[str, int]


class Hanging:
    """Has journals hang until it is over, and asks their neighbours for a sign of life.

    Attributes:
        count: so many hung.
        faults: partitions that stood still.
    """

    def __init__(self, world: World, cluster: Cluster, faults: ClusterFaults, end_us: int) -> None:
        self._dice = random.Random(f"{world.seed} hanging")
        self._world, self._cluster, self._breaks, self._end_us = world, cluster, faults, end_us
        self.count = 0
        self.faults: list[Fault] = []

    def begin(self) -> None:
        """Once everything is well."""
        for machine in self._cluster.machines:
            machine.on_start.append(_make)
            if self._cluster.plan.aims:
                machine.on_start.append(partial(_make, name=BESIDE))
        if self._cluster.plan.aims:
            self._use()
        self._later(SECOND // self._cluster.plan.haste)

    def _use(self) -> None:
        """A topic that nobody uses is served by nobody, so none of its journals hangs."""
        if self._world.now_us >= self._end_us:
            return
        for machine in self._cluster.machines:
            if machine.broker is not None and machine.broker.serves(NAME):
                for name in (NAME, BESIDE):
                    self._world.after(0, partial(self._send, machine, name), machine.life)
        self._world.after(SECOND // 2 // self._cluster.plan.haste, self._use)

    def _later(self, longest_us: int) -> None:
        self._world.after(self._dice.randint(longest_us // 10, longest_us), self._try)

    def _try(self) -> None:
        if self._world.now_us >= self._end_us:
            return
        # Whatever broke before has to be over, so nothing new breaks.
        self._breaks.calm_until_us = self._world.now_us + SECOND
        if not self._is_well():
            self._world.after(SECOND // 10, self._try)
            return
        served = self._served()
        near = [one for one in served if one[1].topic.name == NAME]
        share = 0.6
        if self._cluster.plan.aims:  # what is not read yet has nothing that could hang when closed
            near = [one for one in near if all(place.loaded for place in one[1].partitions)]
            served = [one for one in served if one[1].topic.name != NAME]
            share = 0.7
            if not near and self._dice.random() < 0.95:
                self._world.after(SECOND // 20, self._try)
                return
        if near and self._dice.random() < share:
            self._hang(*self._dice.choice(near))
        elif served:
            self._hang(*self._dice.choice(served))
        self._later(2 * SECOND // self._cluster.plan.haste)

    def _is_well(self) -> bool:
        server = self._cluster.server
        return not (server.is_down or server.is_full or server.hung) and all(
            one.is_well and one.line is not None and not one.line.is_cut and not one.clock.jumped_us
            for one in self._cluster.machines
            if not one.is_gone
        )

    def _served(self) -> list[tuple[ClusterMachine, ServedTopic]]:
        return [
            (machine, runtime)
            for machine in self._cluster.machines
            if machine.broker is not None
            for runtime in machine.broker.runtimes()
        ]

    def _hang(self, owner: ClusterMachine, runtime: ServedTopic) -> None:
        world, hung = self._world, self._cluster.server.hung
        place = (runtime.journals, self._dice.choice(list(runtime.partitions)).number)
        hung.add(place)
        self.count += 1
        until_us = world.now_us + self._dice.randint(HANG_US_MIN, HANG_US_MAX)
        self._breaks.calm_until_us = until_us + SECOND
        soon_us = self._dice.randint(1_000, SECOND // 2)
        what = self._dice.random()
        world.after(0, lambda: self._send(owner), owner.life)
        deleted = 0.6 if self._cluster.plan.aims else 0.5
        if what < deleted and runtime.topic.name == NAME:
            other = self._dice.choice(self._cluster.machines)
            world.after(soon_us, lambda: _delete(other.broker), other.life)
            world.after(until_us - world.now_us, lambda: _make(other.broker), other.life)
        elif what > 0.6:
            world.after(soon_us, lambda: owner.die(power_cut=False), owner.life)
        world.after(until_us - world.now_us, lambda: hung.discard(place))
        self._ask_all(place)

    def _send(self, owner: ClusterMachine, name: str = NAME) -> None:
        """To each partition, so that something is on its way to the journal that hangs."""
        due_ms = (self._world.now_us + FAR_AHEAD_US) // 1_000
        batch = pa.record_batch({"payload": pa.array([b""] * 8), "due": pa.array([due_ms] * 8)})
        with suppress(DejaQError):
            if owner.broker is not None:
                for number in range(4):  # some for each partition
                    owner.broker.open_write(WriteStream(name)).submit(number, batch, lambda _: None)

    def _ask_all(self, place: Place) -> None:
        if place not in self._cluster.server.hung:
            return
        for machine, runtime in self._served():
            for partition in runtime.partitions:
                if (runtime.journals, partition.number) != place:
                    self._ask(machine, runtime, partition.number, place)
        self._world.after(ASK_US, lambda: self._ask_all(place))

    def _ask(
        self, machine: ClusterMachine, runtime: ServedTopic, number: int, place: Place
    ) -> None:
        answer: Future[int] = runtime.look(number, _next_sequence)

        def look() -> None:
            # What is being closed turns whoever waits away once it is.
            is_served = machine.broker is not None and runtime in machine.broker.runtimes()
            if not answer.done() and is_served and place in self._cluster.server.hung:
                name = runtime.topic.name
                text = f"{name}/{number} of {machine.name} stands still while {place} hangs"
                self.faults.append(Fault(18, text))

        self._world.after(ANSWER_US_MAX, look, machine.life)


def _make(broker: Broker | None, name: str = NAME) -> None:
    with suppress(DejaQError):  # another broker makes it, or is deleting it
        if broker is not None:
            broker.create_topic(Topic(name, partitions=2), exist_ok=True)


def _delete(broker: Broker | None) -> None:
    with suppress(DejaQError):
        if broker is not None:
            broker.delete_topic(NAME)


def _next_sequence(core: PartitionCore) -> int:
    return core.engine.next_sequence
