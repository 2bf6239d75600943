"""Chores run in their order, each hook that a chore has and no other."""

from __future__ import annotations

from typing import Any

from dejaqueue.broker.shard.chore import Chore, Chores, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from tests.unit.broker.cores import Served

CORE: Any = None


class Noting(Chore):
    """Notes what it is asked to do."""

    def __init__(self, name: str, noted: list[str], wake: int | None, *, more: bool) -> None:
        self.name, self.noted, self.wake, self.more = name, noted, wake, more

    def loaded(self, core: PartitionCore) -> None:
        self.noted.append(f"{self.name} loaded")

    def configured(self, core: PartitionCore) -> None:
        self.noted.append(f"{self.name} configured")

    def step(self, core: PartitionCore) -> None:
        self.noted.append(f"{self.name} step")

    def before_append(self, core: PartitionCore) -> None:
        self.noted.append(f"{self.name} before")

    def after_append(self, core: PartitionCore, *, is_idle: bool) -> bool:
        self.noted.append(f"{self.name} after, idle {is_idle}")
        return self.more

    def next_us(self, core: PartitionCore) -> int | None:
        return self.wake

    def closed(self) -> None:
        self.noted.append(f"{self.name} closed")


class Quiet(Chore):
    """Has nothing to do."""


def test_each_hook_calls_all_in_their_order() -> None:
    noted: list[str] = []
    first, second = Noting("a", noted, 90, more=True), Noting("b", noted, 80, more=False)
    chores = Chores([first, Quiet(), second])
    chores.loaded(CORE)
    chores.configured(CORE)
    chores.step(CORE)
    chores.before_append(CORE)
    assert chores.after_append(CORE, is_idle=True)  # b is called although a has more to do
    chores.closed()
    hooks = ["loaded", "configured", "step", "before", "after, idle True", "closed"]
    assert noted == [f"{name} {hook}" for hook in hooks for name in "ab"]
    assert chores.next_us(CORE) == 80


def test_what_a_chore_leaves_out_is_not_called() -> None:
    class Fails(Chore):
        def step(self, core: PartitionCore) -> None:
            raise AssertionError("called")

    chores = Chores([Quiet()])
    assert not chores.after_append(CORE, is_idle=False)
    assert chores.next_us(CORE) is None
    assert Chores([Fails()])._plan.before_append == ()
    assert len(Chores([Fails()])._plan.step) == 1


def test_a_time_of_the_engine_is_a_wake_of_the_clock() -> None:
    served = Served()
    core = served.core
    assert wake_us(core, None) is None
    at_us = wake_us(core, core.now_ms() + 5)
    assert at_us is not None
    assert 4_000 < at_us - served.clock.now_us() <= 5_000


class Moot(Noting):
    """Wanted a step that it does not need any more."""

    def is_moot(self, core: PartitionCore) -> bool:
        self.noted.append(f"{self.name} asked")
        return True


def test_a_step_that_became_moot_is_not_wanted() -> None:
    noted: list[str] = []
    moot, later = Moot("a", noted, 80, more=False), Noting("b", noted, 90, more=False)
    chores = Chores([Quiet(), moot, later])
    assert chores.next_us(CORE) == 80
    assert not chores.wants_step(CORE, 79)
    assert noted == []
    assert not chores.wants_step(CORE, 80)
    assert chores.later_us() == 90
    assert chores.wants_step(CORE, 90)
    assert noted == ["a asked"]
    assert chores.next_us(CORE) == 80
