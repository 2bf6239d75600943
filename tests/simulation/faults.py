"""What breaks in a simulation, at random moments until it is time to heal."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from dejaqueue.errors import DejaQError
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.world import World
from tests.simulation.clients import Producer
from tests.simulation.consumers import Consumer
from tests.simulation.scenario import TOPIC, Scenario

SECOND = 1_000_000


class Faults:
    """Breaks things, and restarts a broker that died."""

    def __init__(
        self,
        world: World,
        machine: Machine,
        scenario: Scenario,
        consumers: list[Consumer],
        producers: list[Producer],
        end_us: int,
        haste: int = 1,
    ) -> None:
        self._world = world
        self._machine = machine
        self._consumers, self._producers = consumers, producers
        self._end_us = end_us
        self._second = SECOND // haste
        # Drawn apart: other seeds, those that once found something among them, go on as they did.
        self._clocks = random.Random(f"{world.seed} clocks")
        self._jumps = self._clocks.random() < 0.3
        self._kinds: list[tuple[float, Callable[[], None]]] = [
            (25, lambda: machine.die(power_cut=world.chance(0.5))),
            (30, self._dies_in_a_call),
            (15, machine.stop),
            (5, self._one_write_fails),
            (3, self._one_sync_fails),
            (7, lambda: world.random.choice(consumers).lose()),
            (8, lambda: world.random.choice(producers).lose()),
            (7, lambda: self._step_clock(world.between(0, 5 * SECOND))),
        ]
        if scenario.steps_back:
            self._kinds.append((20, lambda: self._step_clock(-world.between(0, SECOND))))
        if scenario.drifts:
            self._kinds.append((20, lambda: machine.clock.drift(world.between(-100_000, 100_000))))
        if scenario.fills:
            self._kinds.append((25, self._fill_disk))
        if scenario.grows:
            self._kinds.append((25, self._grow))

    @property
    def _over(self) -> bool:
        return self._world.now_us >= self._end_us

    def begin(self) -> None:
        """Some seeds stay calm."""
        if self._jumps:
            self._world.after(self._clocks.randint(0, 2 * self._second), self._jump_clock)
        if not self._world.chance(0.1):
            self._world.after(self._world.between(0, 3 * self._second), self._break_something)
            self._world.after(self._second // 10, self._look)

    def _break_something(self) -> None:
        if self._over:
            return
        shares, calls = zip(*self._kinds, strict=True)
        [call] = self._world.random.choices(calls, shares)
        call()
        self._watch()
        pause_us = self._world.between(self._second // 20, 4 * self._second)
        self._world.after(pause_us, self._break_something)

    # --- coming back --------------------------------------------------------------------------

    def _look(self) -> None:
        self._watch()
        if not self._over:
            self._world.after(self._second // 10, self._look)

    def _watch(self) -> None:
        if self._machine.broker is None:
            self._world.after(self._world.between(1_000, self._second), self._restart)

    def _restart(self) -> None:
        self._put_right()  # a process that begins has nothing to compare its clock with
        if not self._machine.broker:
            self._machine.start()
        if not self._machine.broker and not self._over:
            self._world.after(self._world.between(1_000, self._second // 5), self._restart)

    # --- what breaks --------------------------------------------------------------------------

    def _dies_in_a_call(self) -> None:
        self._machine.disk.dies_at = self._world.between(1, 30)

    def _one_write_fails(self) -> None:
        after = self._world.between(0, 5)
        self._machine.disk.fail("write", after=after, number=errno.ENOSPC)

    def _one_sync_fails(self) -> None:
        """The first sync that fails is final for the process."""
        self._machine.disk.fail("sync", after=self._world.between(0, 5), number=errno.EIO)

        def die() -> None:
            if not self._over:
                self._machine.die(power_cut=True)

        self._world.after(self._world.between(0, self._second), die)

    def _fill_disk(self) -> None:
        """No room for anything, for a while."""
        disk = self._machine.disk
        disk.fail_always("write", errno.ENOSPC)
        disk.fail_always("allocate", errno.ENOSPC)

        def drain() -> None:
            disk.fail_always("write", None)
            disk.fail_always("allocate", None)

        self._world.after(self._world.between(self._second // 20, 3 * self._second), drain)

    def _jump_clock(self) -> None:
        """The wall clock is an hour, a day or ten years off, for a while."""
        if self._over:
            return
        by_us = self._clocks.choice([3_600, 86_400, 315_360_000]) * self._clocks.choice([1, -1])
        self._machine.clock.jump(by_us * SECOND)
        self._world.after(self._clocks.randint(1_000, 3 * self._second), self._put_right)
        self._world.after(self._clocks.randint(0, 5 * self._second), self._jump_clock)

    def _put_right(self) -> None:
        self._machine.clock.jump(0)

    def _step_clock(self, by_us: int) -> None:
        self._machine.clock.skew_us += by_us

    def _grow(self) -> None:
        def grow() -> None:
            broker = self._machine.broker
            if broker is None:
                return
            try:
                count = broker.topic(TOPIC).partitions
                broker.alter_topic(TOPIC, {"partitions": min(6, count + self._world.between(1, 2))})
            except DejaQError:
                return  # a full disk: then not
            if self._world.chance(0.5):  # what was on its way is sent again, by another route
                for producer in self._producers:
                    producer.lose()

        self._machine.guarded(grow)
