"""A machine: a broker dies and comes back with what was durable."""

from __future__ import annotations

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic
from dejaqueue.testing.simulation.disk import Died
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.world import World


def test_a_broker_comes_back_with_its_topics() -> None:
    machine = Machine(World(1))
    with pytest.raises(Unavailable):
        machine.require()
    machine.start()
    first = machine.require()
    first.create_topic(Topic("a"))
    machine.start()
    assert machine.require() is first
    machine.die(power_cut=True)
    assert machine.broker is None
    machine.start()
    assert [topic.name for topic in machine.require().topics()] == ["a"]
    machine.stop()
    machine.stop()
    assert (machine.deaths, machine.restarts, machine.life.over) == (1, 2, True)


def test_whatever_dies_ends_the_life() -> None:
    machine = Machine(World(1))
    machine.start()
    ended: list[int] = []
    machine.life.on_end.append(lambda: ended.append(1))

    def dies() -> None:
        raise Died

    machine.guarded(dies)
    assert ended == [1]
    assert machine.broker is None


def test_a_broker_may_die_while_it_starts() -> None:
    def create(broker: Broker) -> None:
        broker.create_topic(Topic("a"), exist_ok=True)

    machine = Machine(World(1))
    machine.disk.dies_at = 1
    machine.on_start.append(create)
    machine.start()
    assert machine.broker is None
    machine.start()
    assert [topic.name for topic in machine.require().topics()] == ["a"]
