"""Faults that are aimed: at moments that chance seldom meets, of which there are few in a seed.

An append of several records has only its beginning arrive, and its answer is lost. A broker falls
asleep when what it leased was appended and it has not heard of that, and sleeps until the leases
have ended and others deliver again. Of 120 seeds in haste the first happened in one by chance, and
the second in none in a way that broke a rule where the broker then sent what it had leased.

Its dice are its own, as in membership.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from dejaqueue.broker.consumers.dispatch import Push
from tests.simulation.cluster.faults import SECOND, ClusterFaults, Loses
from tests.simulation.cluster.machines import Cluster, ClusterMachine, serves
from tests.simulation.cluster.plan import BEGINNINGS, SLEEPS
from tests.simulation.scenario import TOPIC

SHARE = 0.3
"""Of seeds, for each of the two."""
LEASE_US_MAX = 3 * SECOND
"""Longer leases are not slept out."""


class AimedFaults:
    """Aims at whoever serves the topic until it is over.

    Attributes:
        short_count, slept_count: so many appends were cut short; so often a broker fell asleep.
    """

    def __init__(
        self, cluster: Cluster, breaks: ClusterFaults, consumers: Sequence[Loses], end_us: int
    ) -> None:
        self._world, self._cluster, self._breaks = cluster.world, cluster, breaks
        self._dice = random.Random(f"{cluster.world.seed} aimed")
        self._consumers, self._end_us = consumers, end_us
        self.short_count = self.slept_count = 0

    def begin(self) -> None:
        """In some seeds one of the two, in some both."""
        surely = self._cluster.plan.surely
        for name, aim in ((BEGINNINGS, self._cut_appends_short), (SLEEPS, self._sleep_on_leases)):
            if self._dice.random() < SHARE or name in surely:
                self._later(aim)

    def _later(self, aim: Callable[[], None]) -> None:
        longest_us = 2 * SECOND // self._cluster.plan.haste
        self._world.after(self._dice.randint(longest_us // 10, longest_us), lambda: self._take(aim))

    def _take(self, aim: Callable[[], None]) -> None:
        if self._world.now_us >= self._end_us:
            return
        if self._world.now_us >= self._breaks.calm_until_us:
            aim()
        self._later(aim)

    def _owners(self) -> list[ClusterMachine]:
        machines = self._cluster.machines
        return [m for m in machines if serves(m.broker, TOPIC)]

    # --- a beginning alone arrives ----------------------------------------------------------------

    def _cut_appends_short(self) -> None:
        for machine in self._owners():
            if machine.line is not None:
                machine.line.shortens = self._shorten

    def _shorten(self, count: int) -> int:
        """How many records of so many arrive."""
        self.short_count += 1
        return self._dice.randint(1, count - 1)

    # --- leases that are slept out ----------------------------------------------------------------

    def _sleep_on_leases(self) -> None:
        for machine in self._owners():
            line = machine.line
            if line is not None and line.sleeps_at is None:
                self._aim(machine)

    def _aim(self, machine: ClusterMachine) -> None:
        line = machine.line
        assert line is not None

        def fall_asleep() -> None:
            now_us = self._world.now_us
            ends_us = [push.leased.lease_end_ms * 1_000 for push in _leased(machine)]
            ends_us = [one for one in ends_us if one - machine.time_us <= LEASE_US_MAX]
            if not ends_us:
                if now_us < self._end_us:
                    line.sleeps_at = 1  # at the next one
                return
            self.slept_count += 1
            lease_us = max(min(ends_us) - machine.time_us, 2_000 * self._cluster.plan.lease_ms)
            machine.pause(lease_us + self._dice.randint(SECOND // 2, 2 * SECOND))
            for consumer in self._consumers:  # who notices that it is silent
                if self._dice.random() < 0.7:
                    self._world.after(self._dice.randint(0, lease_us), consumer.lose)
            machine.pass_time(1_000)

        line.sleeps_at, line.falls_asleep = 1, fall_asleep


def _leased(machine: ClusterMachine) -> Iterable[Push]:
    """What is on its way to the journal and then to consumers."""
    for runtime in machine.broker.runtimes() if machine.broker is not None else ():
        for partition in runtime.partitions if runtime.topic.name == TOPIC else ():
            group = partition.core.commits._in_flight if partition.was_read else None
            for _, push in group.pushes if group is not None else ():
                if not push.is_done:
                    yield push
