"""Facts of a simulated parent process, which its children reach over pairs of sockets.

FactsServer and ParentCoordinator are the product's, down to what they send. A socket of this kind
loses nothing, so nothing is lost here: a parent that is stopped answers once it goes on, which may
be later than anybody waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from dejaqueue.coordinator import facts_server
from dejaqueue.coordinator.facts_server import FactsServer
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.coordinator.parent_facts import ANSWER_S, ParentCoordinator
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import Life, SimulatedClock, World
from tests.simulation.cluster.fibers import Fibers, Waiter
from tests.simulation.cluster.stand_ins import FiberCondition, fibers_now
from tests.simulation.cluster.ways import FarWay

STALL_US = int(ANSWER_S * 1_000_000)


class ParentFacts(ProcessFacts):
    """See coordinators.Facts."""

    travels = True

    def __init__(self, world: World, clock: SimulatedClock) -> None:
        super().__init__(
            clock, at=lambda instant_us, call: world.after(instant_us - world.now_us, call)
        )
        self._life = Life(self._guarded)
        self._fibers = Fibers(world, self._life)
        self._server = FactsServer(self)

    def _guarded(self, call: Callable[[], None]) -> None:
        with suppress(Gone):
            self._fibers.run(call)

    def reach(self, world: World) -> tuple[Coordinator, FarWay, Callable[[], None]]:
        """See Facts.reach."""
        way = StoppedWay(world)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(facts_server, "threading", _threads_of(self._fibers))
            pairs = SimpleNamespace(socketpair=partial(_pair, way))
            patch.setattr(facts_server, "socket", pairs)
            patch.setattr(facts_server, "Connection", lambda end: end)
            end: Any = self._server.connect()
        return ParentCoordinator(end), way, end.close


class StoppedWay(FarWay):
    """The pair of sockets of one child."""

    def stalls_for_us(self) -> int:
        """How much later than usual what the parent says comes."""
        if self.answers_lost:
            self.answers_lost -= 1
            return STALL_US + self.world.between(1_000, 1_000_000)
        return 0


class End:
    """One end of a pair of sockets, as the product's two connections use it.

    Attributes:
        other: the other end.
    """

    other: End

    def __init__(self, way: StoppedWay, *, is_parent: bool) -> None:
        self._way, self._is_parent = way, is_parent
        self._arrived: deque[bytes] = deque()
        self._held: list[bytes] = []
        self._waiters: list[Waiter] = []
        self._arrives_us = 0
        self.is_over = False
        way.on_mend.append(self._go_on)

    def send_bytes(self, content: bytes) -> None:
        """See Connection.send_bytes."""
        if self.is_over or self.other.is_over:
            raise BrokenPipeError("the other end is closed")
        way, world = self._way, self._way.world
        travel_us = way.travel_us() if way.late_us_max else 1
        if self._is_parent:
            travel_us += way.stalls_for_us()
        self._arrives_us = max(self._arrives_us + 1, world.now_us + travel_us)
        world.after(self._arrives_us - world.now_us, lambda: self.other._take(content))

    def _take(self, content: bytes) -> None:
        if self._way.is_cut or self._held:
            self._held.append(content)
        else:
            self._arrived.append(content)
            self._tell()

    def _go_on(self) -> None:
        held, self._held = self._held, []
        self._arrived.extend(held)
        self._tell()

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.tell()

    def recv_bytes(self) -> bytes:
        """See Connection.recv_bytes."""
        while not self._arrived:
            if self.is_over or self.other.is_over:
                raise EOFError
            fibers = fibers_now()
            waiter = Waiter(fibers)
            self._waiters.append(waiter)
            waiter.wait()
        return self._arrived.popleft()

    def close(self) -> None:
        """Its process has ended, or has shut the connection down."""
        self.is_over = True
        for end in (self, self.other):
            end._tell()
            if end._go_on in self._way.on_mend:
                self._way.on_mend.remove(end._go_on)

    # --- as socket.socket and Connection have it --------------------------------------------------

    def fileno(self) -> End:
        """It stands for itself."""
        return self

    def detach(self) -> End:
        """The same."""
        return self

    def shutdown(self, _: int) -> None:
        """See socket.shutdown."""
        self.close()

    def __enter__(self) -> End:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """It is closed elsewhere."""


def _pair(way: StoppedWay) -> tuple[End, End]:
    mine, theirs = End(way, is_parent=True), End(way, is_parent=False)
    mine.other, theirs.other = theirs, mine
    return mine, theirs


def fiber_sockets() -> SimpleNamespace:
    """In place of the module socket, where a connection is shut down."""
    return SimpleNamespace(socket=lambda fileno: fileno, SHUT_RDWR=2)


def _threads_of(fibers: Fibers) -> SimpleNamespace:
    """In place of threading, for what begins in the parent's life."""

    class Thread:
        def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
            self._target = target

        def start(self) -> None:
            world = fibers.world
            world.after(world.between(10, 2_000), self._target, fibers.life)

    return SimpleNamespace(Thread=Thread, Condition=FiberCondition)
