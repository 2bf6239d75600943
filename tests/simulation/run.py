"""One simulation from one seed: clients work, things break, all is mended, everything is judged."""

from __future__ import annotations

import hashlib
import itertools
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from dejaqueue.broker.topic.writer import Writer
from dejaqueue.testing.simulation.machine import Machine, Reachable
from dejaqueue.testing.simulation.world import START_US, World
from tests.checker.fault import Fault
from tests.checker.history import History
from tests.checker.internal import internal_errors
from tests.checker.judge import judge
from tests.simulation.clients import Producer
from tests.simulation.consumers import Consumer, FiringReader, LetterReader
from tests.simulation.faults import Faults
from tests.simulation.planners import Planner
from tests.simulation.scenario import Scenario, choose
from tests.simulation.transactors import Transactor
from tests.simulation.vandals import Vandal
from tests.simulation.views import Views, in_small_pieces, with_views

SECOND = 1_000_000
DRAIN_SECONDS = 60
KEYS_MAX = 25
"""Keys of a topic that retains the newest message of each: they come again."""


class Told(Protocol):
    """A history, as far as a run needs it: its judges know more."""

    def text(self) -> str:
        """All of it, the same for equal seeds."""
        ...


@dataclass
class Run:
    """What came of a seed.

    Attributes:
        faults: rules that were broken.
        fingerprint: of everything that happened: equal for equal seeds.
    """

    seed: int
    faults: list[Fault]
    history: History
    fingerprint: str
    virtual_seconds: float
    happened: int
    deaths: int

    @classmethod
    def of(
        cls, world: World, history: Told, faults: list[Fault], deaths: int, also: object = ""
    ) -> Run:
        """What came of a world that has run.

        Args:
            also: what has to be the same for equal seeds, and is not in the history.
        """
        digest = hashlib.blake2b(history.text().encode(), digest_size=12)
        digest.update(f"{world.happened} {world.now_us} {also}".encode())
        seconds = (world.now_us - START_US) / SECOND
        fingerprint = digest.hexdigest()
        return cls(world.seed, faults, history, fingerprint, seconds, world.happened, deaths)  # type: ignore[arg-type]


def simulate(seed: int, haste: int = 1, *, rude: bool = False, views: bool = False) -> Run:
    """Run a seed.

    Args:
        haste: it is so many times shorter, and things break so many times as often.
        rude: there is a client that sends what nobody may, and no bug of ours may come of it.
        views: the topic has named subscriptions, and may retain what they are done with.
    """
    with internal_errors() as made, in_small_pieces() if views else nullcontext():
        run = _simulate(seed, haste, rude=rude, with_subscriptions=views)
    if rude:
        run.faults += [Fault(15, f"an internal error: {text}") for text in dict.fromkeys(made)]
    return run


def _simulate(seed: int, haste: int, *, rude: bool, with_subscriptions: bool) -> Run:
    world = World(seed)
    Writer._spread = itertools.count()  # the one thing that outlives a broker
    machine = Machine(world)
    random = world.random
    scenario = choose(world)
    if with_subscriptions:
        scenario = with_views(scenario, seed)
    history = history_of(scenario)
    machine.on_start.append(scenario.make_topics)
    machine.start()
    people = people_of(world, machine, history, scenario)
    views = Views(world, machine, history, scenario) if with_subscriptions else None
    end_us = world.now_us + random.choice([2, 4, 8]) * SECOND // haste
    if views is not None:
        people.add(views)
        views.begin(end_us)
    Faults(world, machine, scenario, people.consumers, people.producers, end_us, haste).begin()
    vandal = Vandal(seed, world, machine)
    if rude:
        world.after(0, vandal.act)
    world.run(end_us)
    vandal.stopped = True
    _heal_and_drain(world, machine, history, people, views)
    history.drained = True
    if machine.broker is not None:
        machine.stop()
    # Where a topic is for its subscriptions alone, nobody gets anything by its own name.
    faults, also = judge(history) if scenario.topic.unnamed else [], ""
    if views is not None:
        faults, also = faults + views.faults(), views.text()
    faults += vandal.faults
    return Run.of(world, history, faults, machine.deaths, also)


def history_of(scenario: Scenario) -> History:
    """What will be noted, and the rules of the topic that it is judged by."""
    topic = scenario.topic
    return History(
        kind=str(topic.kind),
        max_attempts=topic.max_attempts,
        on_duplicate=str(topic.on_duplicate),
        weights=topic.weights,
        group_in_flight_max=topic.group_in_flight_max,
        group_order=str(topic.group_order),
        letters_read=True,
    )


def _has_failed(machine: Machine) -> bool:
    """A partition gave up for good: its disk failed a sync, and it waits for a new process."""
    broker = machine.broker
    if broker is None:
        return True
    return any(
        partition.failure is not None
        for runtime in broker.runtimes()  # also where dead letters are, and entries
        for partition in runtime.partitions
    )


@dataclass
class People:
    """Everybody who talks to the broker."""

    producers: list[Producer]
    consumers: list[Consumer]
    transactors: list[Transactor]

    def add(self, views: Views) -> None:
        """Those of the subscriptions. Producers give keys if that means something (views.py)."""
        self.consumers += views.consumers
        for producer in self.producers:
            producer.keyed = views.keeps_keys
            producer.keys_max = KEYS_MAX

    def heal(self) -> None:
        """Nobody begins anything new; who consumes is careful, and connects anew."""
        for producer in self.producers:
            producer.stopped = True
        for transactor in self.transactors:
            transactor.stopped = True
        for consumer in self.consumers:
            consumer.drains = True
            consumer.lose()  # a slow connection would take longer than the drain has

    @property
    def all(self) -> list[Producer | Transactor]:
        """Those who ask for something and wait for the answer."""
        return [*self.producers, *self.transactors]

    def check_idle(self) -> None:
        """Everybody was answered."""
        assert all(producer.idle for producer in self.producers), "a send was never answered"
        assert all(one.idle for one in self.transactors), "a commit was never answered"


def people_of(world: World, machine: Reachable, history: History, scenario: Scenario) -> People:
    """Have everybody begin within the first second."""
    random = world.random
    known: list[int] = []
    names = random.sample("abcdef", random.choice([1, 2, 3]))
    producers = []
    for name, sender in zip(names, scenario.senders, strict=False):
        producers.append(Producer(name, world, machine, history, known, sender))
    consumers = [Consumer(n, world, machine, history) for n in range(random.choice([1, 2, 4]))]
    transactors = []
    if scenario.transacts:
        transactors = [Transactor(name, world, machine, history) for name in "xy"]
        for place, transactor in enumerate(transactors):
            transactor.partitions = scenario.topic.partitions
            consumers[place % len(consumers)].transactor = transactor
    if scenario.fires:
        for number in range(3):
            world.after(
                world.between(0, SECOND), Planner(f"e{number}", world, machine, history).act
            )
        consumers.append(FiringReader(90, world, machine, history))
    consumers.append(LetterReader(91, world, machine, history))
    for act in (*(one.act for one in producers), *(one.act for one in transactors)):
        world.after(world.between(0, SECOND), act)
    for consumer in consumers:
        world.after(world.between(0, SECOND), consumer.begin)
    return People(producers, consumers, transactors)


def _heal_and_drain(
    world: World, machine: Machine, history: History, people: People, views: Views | None
) -> None:
    """No more faults; what is due gets all the time it needs."""
    machine.disk.heal()
    machine.slow_share = 0.0
    machine.clock.drift(0)
    machine.clock.jump(0)
    if machine.broker is None or _has_failed(machine):
        machine.die(power_cut=False)
    people.heal()
    machine.start()
    assert machine.broker is not None, "a broker on a whole disk does not start"
    history.healed_us = world.now_us
    history.healed_broker_us = machine.time_us + 5 * SECOND  # its clock may have to be waited for
    if views is not None:
        views.heal(history.healed_us, history.healed_broker_us)
    world.run(world.now_us + DRAIN_SECONDS * SECOND)
    people.check_idle()
