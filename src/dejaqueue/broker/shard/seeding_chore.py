"""Seeding: a subscription that begins with what the topic has already gets it in pieces.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: each piece is a command: after a crash the rest follows; a step begins no further one after
some milliseconds, so that nobody waits longer.
See: engine/seeding.py; partition/view.py, where subscriptions begin; rule 19.
"""

from __future__ import annotations

from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import SeedView
from dejaqueue.engine.views import NamedView

SPAN = 4_096
"""Sequences that one piece is about: half a millisecond, where all of them are live."""
STEP_US = 4_000
"""A step begins no further piece after this time …"""
PIECES_MAX = 16
"""… and has no more than these."""


class SeedingChore(Chore):
    """Sees to it that views get what they begin with."""

    def step(self, core: PartitionCore) -> None:
        """The next pieces, which are made durable together."""
        if not core.views.named:
            return
        until_us = core.clock.now_us() + STEP_US
        for _ in range(PIECES_MAX):
            view = _first(core)
            if view is None or view.seeding is None:
                return
            end, now_ms = view.seeding.end, core.now_ms()
            core.apply(SeedView(now_ms, view.number, SPAN))
            if view.name in core.seen_as:
                core.seen_as[view.name].counting.came_back(end, now_ms)
            if core.clock.now_us() >= until_us:
                return

    def next_us(self, core: PartitionCore) -> int | None:
        """At once, while there is more."""
        return None if _first(core) is None else core.clock.now_us()


def _first(core: PartitionCore) -> NamedView | None:
    """The first view that has not got everything; None = all have."""
    views = core.views.named.values()
    return next((view for view in views if view.seeding is not None), None)
