"""Faults of servers that keep facts: what breaks between a broker and these, and nowhere else.

What a server pushes ends, and nobody is told of it, or the connection breaks; a broker sleeps until
its session has ended; a change is made and its answer lost, some in a row; nobody leads for a
while, and what was proposed before is dropped; most servers agree late, so that changes meet.

Its dice are its own, as in membership.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dejaqueue.testing.simulation.world import World
from tests.simulation.cluster.jetstream_facts import JetStreamFacts
from tests.simulation.cluster.machines import Cluster, ClusterMachine

SECOND = 1_000_000
AGREE_US_MAX = 400_000


class ServerFaults:
    """Breaks things until it is over, while others may.

    Args:
        is_calm: nothing is to break now.

    Attributes:
        counts: how often each happened.
    """

    def __init__(
        self, world: World, cluster: Cluster, is_calm: Callable[[], bool], end_us: int
    ) -> None:
        self._dice = random.Random(f"{world.seed} servers of facts")
        self._world, self._cluster, self._is_calm, self._end_us = world, cluster, is_calm, end_us
        self._second = SECOND // cluster.plan.haste
        self.counts = {"watches end": 0, "sleeps": 0, "answers": 0, "elections": 0, "slow": 0}
        self._kinds: list[Callable[[], None]] = [
            self._end_watches,
            self._end_watches,
            self._sleep,
            self._lose_answers,
        ]
        if isinstance(cluster.facts, JetStreamFacts):
            self._kinds += [self._elect, self._agree_late]

    def begin(self) -> None:
        """In all seeds that have such a server."""
        self._later()

    def heal(self) -> None:
        """Servers agree at once again."""
        if isinstance(self._cluster.facts, JetStreamFacts):
            self._cluster.facts.server.agree_us_max = 0

    def _later(self) -> None:
        longest_us = 2 * self._second
        self._world.after(self._dice.randint(longest_us // 20, longest_us), self._break)

    def _break(self) -> None:
        if self._world.now_us >= self._end_us:
            return
        if not self._is_calm():
            self._dice.choice(self._kinds)()
        self._later()

    def _one(self) -> ClusterMachine | None:
        there = [one for one in self._cluster.machines if one.is_up and one.coordinator is not None]
        return self._dice.choice(there) if there else None

    def _end_watches(self) -> None:
        machine = self._one()
        if machine is not None and machine.coordinator is not None:
            self.counts["watches end"] += 1
            machine.coordinator.end_watches(silently=self._dice.random() < 0.5)

    def _sleep(self) -> None:
        """Until what it holds by a ttl has vanished, or nearly."""
        machine = self._one()
        if machine is not None:
            self.counts["sleeps"] += 1
            lease_us = 1_000 * self._cluster.plan.lease_ms
            machine.pause(self._dice.randint(lease_us // 2, lease_us + 3 * SECOND))

    def _lose_answers(self) -> None:
        machine = self._one()
        if machine is not None and machine.coordinator is not None:
            self.counts["answers"] += 1
            machine.coordinator.lose_answers(self._dice.randint(1, 3))

    def _elect(self) -> None:
        facts = self._cluster.facts
        assert isinstance(facts, JetStreamFacts)
        self.counts["elections"] += 1
        facts.server.elect(self._dice.randint(1_000, 2 * self._second))

    def _agree_late(self) -> None:
        facts = self._cluster.facts
        assert isinstance(facts, JetStreamFacts)
        self.counts["slow"] += 1
        server = facts.server
        server.agree_us_max = self._dice.randint(1_000, AGREE_US_MAX)
        length_us = self._dice.randint(self._second // 2, 4 * self._second)
        self._world.after(length_us, lambda: setattr(server, "agree_us_max", 0))
