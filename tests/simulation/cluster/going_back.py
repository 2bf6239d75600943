"""A coordinator that is restored from an older copy, and an operator who has that mended.

Its dice are its own, so that the seeds of everything else stay what they are.
"""

from __future__ import annotations

import random

from dejaqueue.errors import DejaQError
from dejaqueue.testing.simulation.world import World
from tests.simulation.cluster.machines import Cluster

SECOND = 1_000_000
SHARE = 0.4
"""Of seeds in which it happens."""
YOUNG_SHARE = 0.3
"""Of these, those whose copy is taken while topics are made."""


class GoingBack:
    """Takes a copy of the facts, restores it later, and asks for `check --adopt` after that.

    Attributes:
        happened: how often facts went back.
    """

    def __init__(self, seed: int, world: World, cluster: Cluster) -> None:
        self._dice = random.Random(f"{seed} goes back")
        self._world, self._cluster = world, cluster
        self.happened = 0

    def begin(self, end_us: int) -> None:
        """Some seeds are spared."""
        if self._dice.random() > SHARE:
            return
        now_us = self._world.now_us
        # Topics are made at the very beginning.
        latest_us = now_us + 60_000 if self._dice.random() < 0.5 else end_us - SECOND
        copied_us = self._dice.randint(now_us, latest_us)
        young = random.Random(f"{self._world.seed} young copy")
        if young.random() < YOUNG_SHARE:  # brokers have started and joined by then
            copied_us = now_us + young.randint(100_000, 300_000)
        restored_us = self._dice.randint(copied_us, end_us)
        self._world.after(copied_us - now_us, lambda: self._copy(restored_us))

    def _copy(self, restored_us: int) -> None:
        copy = self._cluster.facts.copy()

        def restore() -> None:
            self.happened += 1
            self._cluster.is_astray = True
            if self._cluster.plan.outage:
                for machine in self._cluster.machines:
                    machine.die(power_cut=False)
            self._cluster.facts.restore(copy)
            self._world.after(self._dice.randint(0, 3 * SECOND), self.ask_until_whole)

        self._world.after(restored_us - self._world.now_us, restore)

    def ask_until_whole(self) -> None:
        """An operator asks a broker, another one if it does not answer, until nothing is astray."""
        if not self.happened:
            return
        machine = self._dice.choice(self._cluster.machines)
        state = {"whole": False}

        def arrive() -> None:
            try:
                if machine.node is not None:
                    found = machine.node.act("check_cluster", {})["astray"]
                    state["whole"] = not found
                    self._cluster.is_astray = bool(found)
            except DejaQError:
                pass

        def look() -> None:
            if not state["whole"]:
                self.ask_until_whole()

        if machine.is_up:
            self._world.after(0, arrive, machine.life)
        self._world.after(self._dice.randint(SECOND // 2, SECOND), look)
