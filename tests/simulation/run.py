"""One simulation from one seed: clients work, things break, all is mended, everything is judged."""

from __future__ import annotations

import errno
import hashlib
import itertools
from dataclasses import dataclass, field

from dejaqueue.broker.writer import Writer
from dejaqueue.model import OnDuplicate, Topic, TopicKind
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.world import World
from tests.checker.history import History
from tests.checker.judge import Fault, judge
from tests.simulation.clients import TOPIC, Consumer, Producer

SECOND = 1_000_000
DRAIN_SECONDS = 60


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
    notes: list[str] = field(default_factory=list)


def simulate(seed: int) -> Run:
    """Run a seed."""
    world = World(seed)
    Writer._spread = itertools.count()  # the one thing that outlives a broker
    machine = Machine(world)
    random = world.random
    kind = random.choice(["timeline", "timeline", "timeline", "priority", "fair"])
    topic = Topic(
        TOPIC,
        kind=TopicKind(kind),
        partitions=random.choice([1, 1, 2, 3]),
        lease_ms=random.choice([500, 3_000, 10_000]),
        on_duplicate=OnDuplicate.REJECT,
        max_attempts=0,
    )
    history = History(kind=kind)
    machine.on_start.append(lambda broker: broker.create_topic(topic, exist_ok=True) and None)
    machine.start()
    known: list[int] = []
    names = random.sample("abcdef", random.choice([1, 2, 3]))
    producers = [Producer(name, world, machine, history, known) for name in names]
    consumers = [Consumer(n, world, machine, history) for n in range(random.choice([1, 2, 4]))]
    for producer in producers:
        world.after(world.between(0, SECOND), producer.act)
    for consumer in consumers:
        world.after(world.between(0, SECOND), consumer.begin)
    end_us = world.now_us + random.choice([2, 4, 8]) * SECOND
    _plan_faults(world, machine, producers, consumers, end_us)
    world.run(end_us)
    _heal_and_drain(world, machine, producers, consumers)
    history.drained = True
    if machine.broker is not None:
        machine.stop()
    digest = hashlib.blake2b(history.text().encode(), digest_size=12)
    digest.update(f"{world.happened} {world.now_us}".encode())
    return Run(
        seed,
        judge(history),
        history,
        digest.hexdigest(),
        (world.now_us - 1_700_000_000 * SECOND) / SECOND,
        world.happened,
        machine.deaths,
    )


def _plan_faults(
    world: World,
    machine: Machine,
    producers: list[Producer],
    consumers: list[Consumer],
    end_us: int,
) -> None:
    """Faults at random moments until `end_us`."""
    calm = world.chance(0.1)

    def again() -> None:
        if not machine.broker:
            machine.start()
        if not machine.broker and world.now_us < end_us:
            world.after(world.between(1_000, 200_000), again)

    def dies_of_it() -> None:
        if world.now_us < end_us:
            machine.die(power_cut=True)

    def fault() -> None:
        if world.now_us >= end_us:
            return
        what = world.random.random()
        if what < 0.25:
            machine.die(power_cut=world.chance(0.5))
        elif what < 0.55:
            machine.disk.dies_at = world.between(1, 30)
        elif what < 0.7:
            machine.stop()
        elif what < 0.75:
            machine.disk.fail("write", after=world.between(0, 5), number=errno.ENOSPC)
        elif what < 0.78:
            # The first sync that fails is final for the process.
            machine.disk.fail("sync", after=world.between(0, 5), number=errno.EIO)
            world.after(world.between(0, SECOND), dies_of_it)
        elif what < 0.85:
            world.random.choice(consumers).lose()
        elif what < 0.93:
            world.random.choice(producers).lose()
        else:
            machine.clock.skew_us += world.between(0, 5 * SECOND)
        watch()
        if world.now_us < end_us:
            world.after(world.between(50_000, 4 * SECOND), fault)

    def watch() -> None:
        if machine.broker is None:
            world.after(world.between(1_000, SECOND), again)

    def look() -> None:
        watch()
        if world.now_us < end_us:
            world.after(100_000, look)

    if not calm:
        world.after(world.between(0, 3 * SECOND), fault)
        world.after(100_000, look)


def _has_failed(machine: Machine) -> bool:
    """A partition gave up for good: its disk failed a sync, and it waits for a new process."""
    broker = machine.broker
    if broker is None:
        return True
    partitions = broker.runtime(TOPIC).partitions
    return any(partition.failure is not None for partition in partitions)


def _heal_and_drain(
    world: World, machine: Machine, producers: list[Producer], consumers: list[Consumer]
) -> None:
    """No more faults; what is due gets all the time it needs."""
    machine.disk.heal()
    machine.slow_share = 0.0
    if machine.broker is None or _has_failed(machine):
        machine.die(power_cut=False)
    for producer in producers:
        producer.stopped = True
    for consumer in consumers:
        consumer.drains = True
        consumer.lose()  # a slow connection would take longer than the drain has
    machine.start()
    assert machine.broker is not None, "a broker on a whole disk does not start"
    world.run(world.now_us + DRAIN_SECONDS * SECOND)
    assert all(producer.idle for producer in producers), "a send was never answered"
