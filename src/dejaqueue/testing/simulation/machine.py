"""A simulated machine: a disk and a clock that stay, and a broker that lives, dies and comes back.

Room: testing.
Holds: a broker that died does nothing any more, and answers nobody; who was connected hears of it
a little later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.settings import BrokerSettings, ClockSettings, DispatchSettings, JournalSettings
from dejaqueue.testing.simulation.disk import Died, SimulatedDisk, SimulatedStore
from dejaqueue.testing.simulation.threads import Gone, SimulatedThreads
from dejaqueue.testing.simulation.world import Life, SimulatedClock, World

JUMP_US = 6_000_000
"""Steps of a simulated clock are followed up to this; what is more is a jump."""


class Reachable(Protocol):
    """What clients know: one machine, or several of which one at a time serves them.

    Attributes:
        moves: who serves them may be another one at their next try.
    """

    clock: SimulatedClock
    moves: bool

    @property
    def time_us(self) -> int:
        """The latest time that any broker may have seen: what rules about time go by."""
        ...

    def pick(self, topic: str) -> Machine:
        """Where to connect to now for a topic."""
        ...


class Machine:
    """One machine.

    Attributes:
        broker: the one that runs; None while there is none.
        life: ends when this broker does.
        deaths, restarts: how often.
        slow_share: how many of the new connections to it are slow.
    """

    moves = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = SimulatedClock(world, jump_us=JUMP_US)
        self.disk = SimulatedDisk(world)
        self.broker: Broker | None = None
        self.life = Life()
        self.deaths = 0
        self.restarts = 0
        self.slow_share = 0.15
        self.on_start: list[Callable[[Broker], None]] = []
        self._latest_us = 0

    @property
    def time_us(self) -> int:
        """The latest time that any of its brokers may have seen: what rules about time go by."""
        self._latest_us = max(self._latest_us, self.clock.due_us())
        return self._latest_us

    def guarded(self, call: Callable[[], None]) -> None:
        """Do something that may be the broker's end."""
        try:
            call()
        except Died:
            self.die(power_cut=self.world.chance(0.7))
        except Gone:
            pass  # it waited, and its process ended meanwhile

    def start(self) -> None:
        """Start a broker on what the disk holds; it may die on the way, then it is tried again."""
        if self.broker is not None:
            return
        self.life = Life(self.guarded)
        self._latest_us = self.time_us
        self.clock = self.clock.renewed()
        random = self.world.random
        settings = BrokerSettings(
            journal=JournalSettings(
                url="memory:",
                segment_bytes=64 << 10,
                reserve_bytes=0,
                snapshot_entries=random.choice([0, 20, 200]),
                snapshot_interval_ms=random.choice([0, 2_000]),
            ),
            dispatch=DispatchSettings(
                workers=random.choice([1, 2]),
                # Not drawn: each seed goes on as it did.
                take_over_rows_max=(4_096, 1, 5)[self.world.seed % 3],
            ),
            clock=ClockSettings(step_ms_max=JUMP_US // 1_000),
        )
        try:
            store = SimulatedStore(self.disk)
            broker = Broker(settings, self.clock, store, SimulatedThreads(self.world, self.life))
            broker.start()
            for tell in self.on_start:
                tell(broker)
            self.broker = broker
            self.restarts += 1
        except (Died, Gone, DejaQError):
            self.die(power_cut=True)

    def die(self, *, power_cut: bool) -> None:
        """The process ends at once; with a power cut, so does what was not synced."""
        self.broker = None
        self.deaths += 1
        self.disk.dies_at = None
        if power_cut:
            self.disk.cut_power()
        self.life.end()

    def stop(self) -> None:
        """Stop gracefully; a little later if somebody in it waits for something."""
        broker = self.broker
        if broker is None:
            return
        if self.world.waiters:
            self.world.after(10_000, self.stop, self.life)
            return

        def stop() -> None:
            broker.stop()
            self.broker = None
            self.life.end()

        self.guarded(stop)

    def pick(self, topic: str) -> Machine:
        """Where to connect to: there is no other."""
        return self

    def require(self) -> Broker:
        """The broker that runs. Raises Unavailable."""
        if self.broker is None:
            raise Unavailable("there is no broker", 100)
        return self.broker
