"""Connections: in order, late, and gone at any moment."""

from __future__ import annotations

from functools import partial

from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World


def connected(seed: int = 1) -> tuple[World, Machine, Connection]:
    world = World(seed)
    machine = Machine(world)
    machine.start()
    return world, machine, Connection(world, machine)


def test_what_arrives_arrives_in_order() -> None:
    world, _, connection = connected()
    there: list[int] = []
    here: list[int] = []
    for number in range(20):
        connection.to_broker(partial(there.append, number))
        connection.to_client(partial(here.append, number))
    world.run(world.now_us + 10_000_000)
    assert there == here == list(range(20))


def test_both_sides_hear_of_a_break_and_a_first_part_arrives() -> None:
    parts = set()
    for seed in range(60):
        world, _, connection = connected(seed)
        heard: list[str] = []
        here: list[int] = []
        connection.on_break_here = partial(heard.append, "here")
        connection.on_break_there = partial(heard.append, "there")
        for number in range(10):
            connection.to_client(partial(here.append, number))
        connection.break_it()
        connection.break_it()
        connection.to_client(partial(here.append, 99))
        world.run(world.now_us + 10_000_000)
        assert sorted(heard) == ["here", "there"]
        assert here == list(range(len(here)))
        parts.add(len(here))
    assert len(parts) > 2


def test_a_dead_broker_hears_and_says_nothing() -> None:
    world, machine, connection = connected()
    heard: list[str] = []
    connection.on_break_here = lambda: heard.append("here")
    connection.on_break_there = lambda: heard.append("there")
    connection.to_broker(lambda: heard.append("request"))
    machine.die(power_cut=False)
    connection.to_client(lambda: heard.append("answer"))
    world.run(world.now_us + 10_000_000)
    assert heard == ["here"]
    late = Connection(world, machine)
    late.on_break_here = lambda: heard.append("late")
    world.run(world.now_us + 10_000_000)
    assert heard == ["here", "late"]
