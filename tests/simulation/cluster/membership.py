"""Brokers that join a simulated cluster and leave it for good; and clocks that drift.

Its dice are its own, so that the seeds of everything else stay what they are.
"""

from __future__ import annotations

import random

from dejaqueue.testing.simulation.world import World
from tests.simulation.cluster.machines import Cluster, ClusterMachine
from tests.simulation.cluster.plan import has_shards

SECOND = 1_000_000
COUNT_MAX = 5
DRIFT_PPM_MAX = 20
"""Two of these stay within what clients allow for (client/offset.py, DRIFT_PPM)."""


class Membership:
    """Has brokers come and go until it is over.

    Attributes:
        joined, left: how many.
    """

    def __init__(self, world: World, cluster: Cluster, end_us: int) -> None:
        self._dice = random.Random(f"{world.seed} membership")
        self._world, self._cluster, self._end_us = world, cluster, end_us
        self.joined = self.left = 0

    def begin(self) -> None:
        """Every clock drifts."""
        for machine in self._cluster.machines:
            self._drift(machine)
        self._later()

    def _drift(self, machine: ClusterMachine) -> None:
        machine.clock.drift(self._dice.randint(-DRIFT_PPM_MAX, DRIFT_PPM_MAX))

    def _later(self) -> None:
        longest_us = 4 * SECOND // self._cluster.plan.haste
        self._world.after(self._dice.randint(longest_us // 20, longest_us), self._change)

    def _change(self) -> None:
        if self._world.now_us >= self._end_us:
            return
        there = [machine for machine in self._cluster.machines if not machine.is_gone]
        if self._dice.random() < 0.5 and len(self._cluster.machines) < COUNT_MAX:
            self._join()
        elif len(there) > 2:
            # Of newer seeds one stays that all clients were told of: they learn of no others.
            stays = has_shards(self._world.seed)
            self._leave(self._dice.choice(there[stays:]))
        self._later()

    def _join(self) -> None:
        machines = self._cluster.machines
        machine = ClusterMachine("abcde"[len(machines)], self._world, self._cluster)
        machine.on_start = machines[0].on_start
        self._drift(machine)
        machines.append(machine)
        machine.start()
        self.joined += 1

    def _leave(self, machine: ClusterMachine) -> None:
        """As it should, or at once."""
        machine.is_gone = True
        self.left += 1
        if self._dice.random() < 0.6:
            machine.stop()
        else:
            machine.die(power_cut=False)
