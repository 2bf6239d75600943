"""A coordinator that is restored from an older copy. It has no topics, so nothing is astray then.

Its dice are its own, so that the seeds of everything else stay what they are.
"""

from __future__ import annotations

import random

from dejaqueue.errors import DejaQError
from dejaqueue.testing.simulation.world import World
from tests.checker.fault import Fault
from tests.simulation.cluster.machines import Cluster

SECOND = 1_000_000
SHARE = 0.4
"""Of seeds in which it happens."""
YOUNG_SHARE = 0.3
"""Of these, those whose copy is taken while topics are made."""


class GoingBack:
    """Takes a copy of the facts, restores it later, and has topics checked after that.

    Attributes:
        happened: how often facts went back.
        faults: what was astray then.
    """

    def __init__(self, seed: int, world: World, cluster: Cluster) -> None:
        self._dice = random.Random(f"{seed} goes back")
        self._world, self._cluster = world, cluster
        self.happened = 0
        self.faults: list[Fault] = []

    def begin(self, end_us: int) -> None:
        """Some seeds are spared."""
        if self._dice.random() > SHARE:
            return
        now_us = self._world.now_us
        # Topics are made at the very beginning.
        latest_us = now_us + 60_000
        if self._dice.random() >= 0.5:
            latest_us = max(now_us, end_us - SECOND)
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
            if self._cluster.plan.outage:
                for machine in self._cluster.machines:
                    machine.die(power_cut=False)
            self._cluster.facts.restore(copy)
            self._world.after(self._dice.randint(0, 3 * SECOND), self.ask)

        self._world.after(restored_us - self._world.now_us, restore)

    def ask(self) -> None:
        """An operator asks a broker, another one if it does not answer, whether all is there."""
        if not self.happened:
            return
        machine = self._dice.choice(self._cluster.machines)
        answered = False

        def arrive() -> None:
            nonlocal answered
            try:
                if machine.node is not None:
                    for one in machine.node.act("check_cluster", {})["astray"]:
                        self.faults.append(Fault(1, f"astray: {one}"))
                    answered = True
            except DejaQError:
                pass

        def look() -> None:
            if not answered:
                self.ask()

        if machine.is_up:
            self._world.after(0, arrive, machine.life)
        self._world.after(self._dice.randint(SECOND // 2, SECOND), look)
