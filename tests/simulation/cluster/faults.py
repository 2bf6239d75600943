"""What breaks in a simulated cluster, at random moments until it is time to heal."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import DejaQError
from dejaqueue.testing.simulation.world import World
from tests.simulation.cluster.machines import Cluster, ClusterMachine, serves
from tests.simulation.cluster.plan import CLOCKS, SERVED
from tests.simulation.cluster.server_faults import ServerFaults
from tests.simulation.scenario import TOPIC, Scenario

SECOND = 1_000_000


class Loses(Protocol):
    """Whoever has a connection that can break."""

    def lose(self) -> None:
        """Its connection is gone."""


class ClusterFaults:
    """Breaks things, and restarts brokers that died.

    Attributes:
        calm_until_us: nothing else breaks until then.
    """

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        scenario: Scenario,
        consumers: Sequence[Loses],
        producers: Sequence[Loses],
        end_us: int,
    ) -> None:
        self._world, self._cluster, self._consumers = world, cluster, consumers
        self._end_us = end_us
        second = self._second = SECOND // cluster.plan.haste
        self.count = 0
        # Drawn apart: other seeds, those that once found something among them, go on as they did.
        self._clocks = random.Random(f"{world.seed} clocks")
        self._goes_wrong = self._clocks.random() < 0.3 or CLOCKS in cluster.plan.surely
        self._sleeps = random.Random(f"{world.seed} sleeps")
        self._sleeps_in_appends = cluster.plan.is_apart and self._sleeps.random() < 0.3
        self.calm_until_us = 0
        self._kinds: list[tuple[float, Callable[[], None]]] = [
            (20, lambda: self._one().die(power_cut=False)),
            (12, lambda: self._one().stop()),
            (15, self._dies_in_an_append),
            (20, self._sleep),
            (15, lambda: self._cut(facts=True)),
            (20, lambda: self._cut(records=True)),
            (15, lambda: self._cut(facts=True, records=True)),
            (8, lambda: self._server_down(3 * second)),
            (6, self._server_full),
            (6, self._facts_down),
            (10, self._answers_lost),
            (15, self._lists_spoilt),
            (7, lambda: world.random.choice(consumers).lose()),
            (8, lambda: world.random.choice(producers).lose()),
        ]
        if scenario.steps_back:
            self._kinds.append((20, self._step_clock))
        if scenario.grows:
            self._kinds.append((20, self._grow))
        self._of_servers: ServerFaults | None = None
        if cluster.plan.coordinator in SERVED:
            self._of_servers = ServerFaults(world, cluster, self._is_calm, end_us)

    @property
    def _over(self) -> bool:
        return self._world.now_us >= self._end_us

    def _is_calm(self) -> bool:
        return self._world.now_us < self.calm_until_us

    def begin(self) -> None:
        """Some seeds stay calm."""
        self._world.after(self._second // 10, self._look)
        if self._goes_wrong:
            self._world.after(
                self._clocks.randint(0, 3 * self._second), self._come_with_a_wrong_clock
            )
        if self._of_servers is not None:
            self._of_servers.begin()
        if not self._world.chance(0.08):
            self._world.after(self._world.between(0, 3 * self._second), self._break_something)

    def heal(self) -> None:
        """Nothing is broken any more."""
        self._cluster.server.is_down = self._cluster.server.is_full = False
        self._cluster.server.hung.clear()
        self._cluster.trouble = 0.0
        self._cluster.append_us_max = self._cluster.facts_us_max = 0
        if self._of_servers is not None:
            self._of_servers.heal()
        for machine in self._cluster.machines:
            machine.slow_share = 0.0
            machine.life.paused_until_us = 0
            if machine.clock.jumped_us:
                machine.die(power_cut=False)
            if machine.line is not None:
                machine.line.heal()
            if machine.coordinator is not None and machine.is_up:
                machine.coordinator.lose_answers(0)
                machine.coordinator.lists_spoilt = machine.coordinator.late_us_max = 0
                machine.coordinator.mend()
            machine.start()
        for place in range(1, 12):  # whoever was just stopping comes back when that is over
            self._world.after(place * SECOND // 2, self._start_all)

    def _start_all(self) -> None:
        for machine in self._cluster.machines:
            machine.start()

    def _break_something(self) -> None:
        if self._over:
            return
        if self._world.now_us < self.calm_until_us:
            self._world.after(self._second // 2, self._break_something)
            return
        shares, calls = zip(*self._kinds, strict=True)
        [call] = self._world.random.choices(calls, shares)
        call()
        self.count += 1
        self._world.after(
            self._world.between(self._second // 20, 3 * self._second), self._break_something
        )

    def _look(self) -> None:
        for machine in self._cluster.machines:
            if not machine.is_up and self._world.chance(0.1):
                machine.start()
        if not self._over:
            self._world.after(self._second // 10, self._look)

    # --- what breaks --------------------------------------------------------------------------

    def _one(self) -> ClusterMachine:
        """Mostly whoever serves."""
        owners = [m for m in self._cluster.machines if serves(m.broker, TOPIC)]
        some = owners if owners and self._world.chance(0.7) else self._cluster.machines
        return self._world.random.choice(some)

    def _dies_in_an_append(self) -> None:
        machine = self._one()
        if machine.line is not None:
            machine.line.dies_at = self._world.between(1, 20)

    def _sleep(self) -> None:
        """Now; or when an append was made, and the broker does not know it yet."""
        machine = self._one()
        duration_us = self._world.between(10_000, 5 * self._second)
        line = machine.line
        if line is None or not self._sleeps_in_appends:
            machine.pause(duration_us)
            return

        def fall_asleep() -> None:
            machine.pause(duration_us)
            # Some consumers notice that it is silent, and are served by the next owner.
            for consumer in self._consumers:
                if self._sleeps.random() < 0.5:
                    self._world.after(self._sleeps.randint(0, duration_us), consumer.lose)
            machine.pass_time(1_000)

        line.sleeps_at, line.falls_asleep = self._sleeps.randint(1, 10), fall_asleep

    def _later(self, longest_us: int, call: Callable[[], None]) -> None:
        self._world.after(self._world.between(10_000, longest_us), call)

    def _cut(self, *, facts: bool = False, records: bool = False) -> None:
        machine = self._one()
        coordinator, line = machine.coordinator, machine.line
        if coordinator is None or line is None or not machine.is_up:
            return
        coordinator.is_cut |= facts
        line.is_cut |= records

        def mend() -> None:
            if facts:
                coordinator.mend()
            if records:
                line.is_cut = False

        self._later(4 * self._second, mend)

    def _server_down(self, longest_us: int) -> None:
        server = self._cluster.server
        server.is_down = True
        self._later(longest_us, lambda: setattr(server, "is_down", False))

    def _server_full(self) -> None:
        server = self._cluster.server
        server.is_full = True
        self._later(2 * self._second, lambda: setattr(server, "is_full", False))

    def _facts_down(self, length_us: int = 0) -> None:
        for machine in self._cluster.machines:
            coordinator = machine.coordinator
            if coordinator is not None and machine.is_up:
                coordinator.cut()
                if length_us:
                    self._world.after(length_us, coordinator.mend)
                else:
                    self._later(3 * self._second, coordinator.mend)

    def _answers_lost(self) -> None:
        coordinator = self._one().coordinator
        if coordinator is not None:
            coordinator.lose_answers(self._world.between(1, 3))

    def _lists_spoilt(self) -> None:
        machine = self._one()
        coordinator, node = machine.coordinator, machine.node
        if coordinator is not None and node is not None:
            coordinator.lists_spoilt = self._world.between(1, 6)
            self._world.after(0, node._see_topics, machine.life)  # as after any change

    def _step_clock(self) -> None:
        machine = self._one()
        machine.clock.skew_us += self._world.between(-500_000, 500_000)

    def _come_with_a_wrong_clock(self) -> None:
        """A broker begins anew, a minute to ten years off, while others are there; or its clock
        jumps while it runs. Who begins alone is believed: there is nothing to compare with."""
        machines = [one for one in self._cluster.machines if not one.is_gone]
        if self._over or self._world.now_us < self.calm_until_us:
            return
        machine = self._clocks.choice(machines)
        by_s = self._clocks.choice([60, 3_600, 86_400, 315_360_000]) * self._clocks.choice([1, -1])
        if self._clocks.random() < 0.4:
            machine.clock.jump(by_s * SECOND)
            length_us = self._clocks.randint(1_000, 3 * self._second)
            self._world.after(length_us, lambda: machine.clock.jump(0), machine.life)
        elif len(machines) > 1 and all(one.is_well for one in machines):
            wait_us = 0
            if self._clocks.random() < 0.3:  # it is the first one that is there again
                wait_us = self._cluster.plan.lease_ms * 1_250
                self._facts_down(wait_us + self._clocks.randint(0, wait_us))
            self.calm_until_us = self._world.now_us + wait_us + 5 * self._second
            self._world.after(wait_us, partial(self._begin_wrong, machine, by_s))
        self._world.after(self._clocks.randint(0, 4 * self._second), self._come_with_a_wrong_clock)

    @staticmethod
    def _begin_wrong(machine: ClusterMachine, by_s: int) -> None:
        machine.die(power_cut=False)
        machine.clock.jump(by_s * SECOND)
        machine.starts_wrong = True
        machine.start()

    def _grow(self) -> None:
        for machine in self._cluster.machines:
            broker = machine.broker
            if broker is not None and serves(broker, TOPIC):
                self._world.after(0, lambda broker=broker: self._grow_at(broker), machine.life)  # type: ignore[misc]
                return

    def _grow_at(self, broker: Broker) -> None:
        try:
            count = broker.topic(TOPIC).partitions
            spread = broker.topic(TOPIC).spread
            more = min(6 * spread, count + self._world.between(1, 2) * spread)
            broker.alter_topic(TOPIC, {"partitions": more})
        except DejaQError:
            return
