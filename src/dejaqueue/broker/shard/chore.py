"""Chores: what a partition does beside answering requests and leasing.

Room: broker. Everything here runs on the partition's worker, as a part of its step.
Holds: chores run in the order in which they were given; none of them waits for anything; what one
raises breaks the step off, as with anything else that it does.
See: partition.py, whose step runs them; broker.py, which says which chores a partition has;
docs/adr/0031-partition-core-and-chores.md.

    step → (leasing) → before_append → the group is appended, or on its way → after_append

A new chore is one class in a file of its own, and one line in `broker.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dejaqueue.broker.shard.core import PartitionCore


class Chore:
    """What a partition does when it is time. Each method may be left out: then it costs nothing."""

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read, for the first time or again: what was planned before is void."""

    def configured(self, core: PartitionCore) -> None:
        """The topic's settings are others than in the step before, or the partition was read."""

    def step(self, core: PartitionCore) -> None:
        """Do what is due, by commands of the group that is being filled. Left out while that group
        is full."""

    def before_append(self, core: PartitionCore) -> None:
        """The group is about to be appended: the last chance to add to it. Also while it is full,
        so it must be little."""

    def after_append(self, core: PartitionCore, *, is_idle: bool) -> bool:
        """The group was appended, or is on its way.

        Args:
            is_idle: no request waits, so there is time for more than a little.

        Returns:
            True if there is more to do at once.
        """
        return False

    def next_us(self, core: PartitionCore) -> int | None:
        """When it wants a step though nothing else happens, clock µs; None = it does not."""
        return None

    def is_moot(self, core: PartitionCore) -> bool:
        """Asked when the step that it wanted is due and nothing else wants one: whether it needs
        none any more. Then it is asked no more before the next step. Must be little."""
        return False

    def closed(self) -> None:
        """The partition is served no more by this object."""


def wake_us(core: PartitionCore, at_ms: int | None) -> int | None:
    """When the clock that workers sleep by says that it is `at_ms` UTC; None = never."""
    return None if at_ms is None else at_ms * 1_000 + core.clock.ahead_us


class _Plan:
    """Which of these kinds of chores have which hooks: (place of the chore, the function of its
    class). One for all partitions that have the same."""

    def __init__(self, kinds: tuple[type[Chore], ...]) -> None:
        def own(hook: str) -> tuple[tuple[int, Callable[..., Any]], ...]:
            left_out = getattr(Chore, hook)
            found = [(place, getattr(kind, hook)) for place, kind in enumerate(kinds)]
            return tuple((place, function) for place, function in found if function is not left_out)

        self.loaded = own("loaded")
        self.configured = own("configured")
        self.step = own("step")
        self.before_append = own("before_append")
        self.after_append = own("after_append")
        self.next_us = own("next_us")
        self.closed = own("closed")


_plan_of = cache(_Plan)


class Chores:
    """The chores of one partition, in their order.

    What a chore left out of `Chore` is not called: a step of a single message takes 100 µs, of
    which eight empty calls for each chore would be a part that one can measure. To find that out
    for each of 5,000 partitions anew would take longer than all else that they are made of.
    """

    __slots__ = ("_chores", "_plan", "_wakes_us")

    def __init__(self, chores: Sequence[Chore]) -> None:
        self._chores = tuple(chores)
        self._plan = _plan_of(tuple(map(type, self._chores)))
        self._wakes_us: list[int | None] = []

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read."""
        for place, loaded in self._plan.loaded:
            loaded(self._chores[place], core)

    def configured(self, core: PartitionCore) -> None:
        """The topic's settings are new to it."""
        for place, configured in self._plan.configured:
            configured(self._chores[place], core)

    def step(self, core: PartitionCore) -> None:
        """Have each do what is due."""
        for place, step in self._plan.step:
            step(self._chores[place], core)

    def before_append(self, core: PartitionCore) -> None:
        """The group is about to be appended."""
        for place, before_append in self._plan.before_append:
            before_append(self._chores[place], core)

    def after_append(self, core: PartitionCore, *, is_idle: bool) -> bool:
        """The group was appended; True if one of them has more to do at once."""
        has_more = False
        for place, after_append in self._plan.after_append:
            has_more |= after_append(self._chores[place], core, is_idle=is_idle)
        return has_more

    def next_us(self, core: PartitionCore) -> int | None:
        """When the first of them wants a step, clock µs; None = none does."""
        chores = self._chores
        self._wakes_us = wakes_us = [
            next_us(chores[place], core) for place, next_us in self._plan.next_us
        ]
        return min((wake_us for wake_us in wakes_us if wake_us is not None), default=None)

    def wants_step(self, core: PartitionCore, now_us: int) -> bool:
        """Whether one of them needs the step that it wanted by now."""
        for place, wake_us in enumerate(self._wakes_us):
            if wake_us is not None and wake_us <= now_us:
                kind, _ = self._plan.next_us[place]
                if not self._chores[kind].is_moot(core):
                    return True
                self._wakes_us[place] = None
        return False

    def later_us(self) -> int | None:
        """When the first of them wants a step, as it was after the last one."""
        return min((wake_us for wake_us in self._wakes_us if wake_us is not None), default=None)

    def closed(self) -> None:
        """The partition is served no more."""
        for place, closed in self._plan.closed:
            closed(self._chores[place])
