"""Covers: when a partition has its tail proved. What it is for: tests/crash/test_tail_damage.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dejaqueue.broker.shard.resting import REST_US, Rest


class Core:
    """What Rest asks of a partition's core."""

    def __init__(self) -> None:
        self.position = 0
        self.now_us = 1_000_000
        self.proofs: list[int] = []
        self.commits = SimpleNamespace(in_flight=False)
        self.clock = SimpleNamespace(now_us=lambda: self.now_us)
        self.journal: Any = self
        self.rest = Rest()

    @property
    def is_proved(self) -> bool:
        return self.proofs[-1:] == [self.position]

    def prove(self) -> None:
        self.proofs.append(self.position)

    def step(self, *, after_us: int = 0, appends: int = 0) -> int | None:
        """Time passes, something may be appended, then it is stepped. When it wants to be next."""
        self.now_us += after_us
        self.position += appends
        core: Any = self
        assert not self.rest.after_append(core, is_idle=True)
        wake_us = self.rest.next_us(core)
        return None if wake_us is None else wake_us - self.now_us


def test_a_tail_is_proved_once__when_nothing_was_appended_for_a_while() -> None:
    core: Any = Core()
    assert core.step(appends=1) == REST_US
    assert core.step(after_us=REST_US // 2) == REST_US // 2
    assert core.proofs == []
    assert core.step(after_us=REST_US // 2) is None
    assert core.proofs == [1]
    assert core.step(after_us=10 * REST_US) is None
    assert core.proofs == [1]


def test_while_appends_follow_each_other_there_is_one_wake_for_many_and_no_proof() -> None:
    core: Any = Core()
    first_us = core.now_us + REST_US
    for _ in range(79):
        wake_us = core.step(after_us=1_000 if core.position else 0, appends=1)
        assert wake_us is not None
        assert core.now_us + wake_us == first_us
    core.step(after_us=1_000, appends=1)
    core.step(after_us=1_000, appends=1)
    assert core.proofs == []
    assert core.rest.next_us(core) == core.now_us + REST_US
    core.step(after_us=REST_US)
    assert core.proofs == [81]


def test_what_is_on_its_way_is_waited_for__and_a_clock_that_steps_back_delays_nothing() -> None:
    core: Any = Core()
    core.step(appends=1)
    core.commits.in_flight = True
    assert core.step(after_us=10 * REST_US) is None
    core.commits.in_flight = False
    core.step(after_us=-100 * REST_US)
    assert core.proofs == [1]


def test_a_wake_is_moot_when_others_proved_the_tail() -> None:
    core: Any = Core()
    core.step(appends=1)
    assert not core.rest.is_moot(core)
    core.prove()
    assert core.rest.is_moot(core)
    core.commits.in_flight = True
    assert not core.rest.is_moot(core)
