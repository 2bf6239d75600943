"""Connections of a simulated network: in order, late, and gone at any moment.

Room: testing. Carries calls, not bytes: the wire's encoding has tests of its own.
Holds: what one side sends arrives in order or not at all; when a connection breaks, both sides hear
of it later, and what was on its way is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.world import World

TRAVEL_US_MAX = 2_000
SLOW_US_MAX = 200_000
BREAK_NOTICED_US_MAX = 300_000


class Connection:
    """A connection of a client to the broker that runs now.

    What a broker sent before it died may arrive after its death; what it would have sent never
    does.

    Attributes:
        open: False once it broke, on either side.
        machine: where the broker is.
    """

    def __init__(self, world: World, machine: Machine) -> None:
        self._world = world
        self.machine = machine
        self._cut_us: int | None = None
        self._there_us = self._here_us = 0
        self._slow = world.chance(machine.slow_share)
        self._arrived: deque[Callable[[], None]] = deque()
        self._busy = False
        self.server_life = machine.life
        self.open = True
        if self.server_life.over:
            world.after(world.between(1_000, BREAK_NOTICED_US_MAX), self.break_it)
        else:
            self.server_life.on_end.append(self.break_it)
        self.on_break_here: Callable[[], None] = lambda: None
        self.on_break_there: Callable[[], None] = lambda: None

    def _travel_us(self) -> int:
        return self._world.between(20, SLOW_US_MAX if self._slow else TRAVEL_US_MAX)

    def to_broker(self, call: Callable[[], None]) -> None:
        """Have something happen at the broker, if it arrives."""
        self._there_us = max(self._there_us + 1, self._world.now_us + self._travel_us())

        def arrive() -> None:
            self._arrived.append(call)
            if not self._busy and not self.server_life.over:
                self._busy = True
                self.server_life.guard(self._take)

        self._world.after(self._there_us - self._world.now_us, arrive)

    def _take(self) -> None:
        """One thread of the broker takes what arrives, and may have to wait for partitions."""
        try:
            while self._arrived:
                call = self._arrived.popleft()
                if self.open and not self.server_life.over:
                    call()
        finally:
            self._busy = False

    def to_client(self, call: Callable[[], None]) -> None:
        """Have something happen at the client, if it arrives."""
        if self.server_life.over or not self.open:
            return
        self._here_us = max(self._here_us + 1, self._world.now_us + self._travel_us())

        def arrive() -> None:
            if self._cut_us is None or self._world.now_us <= self._cut_us:
                call()

        self._world.after(self._here_us - self._world.now_us, arrive)

    def break_it(self) -> None:
        """The connection is gone: of what is on its way to the client the first part arrives."""
        if not self.open:
            return
        self.open = False
        world = self._world
        travel_us = world.between(0, SLOW_US_MAX if self._slow else TRAVEL_US_MAX)
        self._cut_us = world.now_us + travel_us
        noticed_us = travel_us + world.between(1, BREAK_NOTICED_US_MAX)
        world.after(noticed_us, lambda: self.on_break_here())

        def there() -> None:
            if not self.server_life.over:
                self.server_life.guard(self.on_break_there)

        world.after(world.between(0, BREAK_NOTICED_US_MAX), there)
