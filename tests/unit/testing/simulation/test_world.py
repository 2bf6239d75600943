"""The world: what is planned happens in order, and the same again for the same seed."""

from __future__ import annotations

from functools import partial

import pytest

from dejaqueue.clock import Wake
from dejaqueue.testing.simulation.world import START_US, Life, SimulatedClock, World


def trace(seed: int) -> list[tuple[int, int]]:
    world = World(seed)
    seen: list[tuple[int, int]] = []

    def note(number: int) -> None:
        seen.append((number, world.now_us))

    for number in range(50):
        world.after(world.between(0, 5), partial(note, number))
    while world.step():
        pass
    return seen


def test_the_same_seed_does_the_same() -> None:
    assert trace(1) == trace(1)
    assert trace(1) != trace(2)
    assert [when for _, when in trace(1)] == sorted(when for _, when in trace(1))


def test_what_belongs_to_a_life_ends_with_it() -> None:
    world, seen = World(1), []
    life = Life()
    life.on_end.append(lambda: seen.append("end"))
    world.after(10, lambda: seen.append("early"), life)
    world.after(20, life.end)
    world.after(30, lambda: seen.append("late"), life)
    world.run(START_US + 100)
    assert seen == ["early", "end"]
    assert world.now_us == START_US + 100
    life.end()
    assert seen == ["early", "end"]


def test_a_clock_never_goes_back_and_nobody_waits() -> None:
    world = World(1)
    clock = SimulatedClock(world, skew_us=5_000)
    assert clock.now_us() == START_US + 5_000
    clock.skew_us = 0
    assert clock.now_us() == START_US + 5_000
    assert clock.now_ms() == (START_US + 5_000) // 1_000
    with pytest.raises(AssertionError, match="waits"):
        clock.wait_until(None, Wake())


def test_chance_is_a_share() -> None:
    world = World(3)
    hits = sum(world.chance(0.25) for _ in range(4_000))
    assert 850 < hits < 1_150
