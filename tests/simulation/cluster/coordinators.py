"""What the brokers of a simulated cluster agree on, and how each reaches it.

The plan names one of: facts in memory; the coordinator for SQL over a file of SQLite; the one for
etcd over a simulated server; those for Redis, JetStream and ZooKeeper over simulated servers
(redis_facts.py and its neighbours); the one for a parent process over simulated sockets. Their code
is the product's, down to SQLite itself, to httpx, and to the client of a server's library; what it
knows as threads and as the time is the simulation's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

import pytest
from greenlet import getcurrent

from dejaqueue.cluster.clocks import PREFIX as CLOCKS
from dejaqueue.connections import zookeeper as zookeeper_sessions
from dejaqueue.connections.extras import load
from dejaqueue.coordinator import (
    counted,
    etcd,
    facts_server,
    jetstream,
    parent_facts,
    zookeeper,
)
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.etcd_facts import EtcdFacts
from tests.simulation.cluster.fibers import Fibers
from tests.simulation.cluster.jetstream_facts import JetStreamFacts
from tests.simulation.cluster.parent_facts import ParentFacts, fiber_sockets
from tests.simulation.cluster.redis_facts import RedisFacts
from tests.simulation.cluster.sqlite_facts import SqliteFacts
from tests.simulation.cluster.stand_ins import fiber_future, fiber_queues, fiber_threads, fibers_now
from tests.simulation.cluster.threads import FiberFuture
from tests.simulation.cluster.ways import FarWay
from tests.simulation.cluster.zookeeper_facts import ZooKeeperFacts, simulated_kazoo

Answer = TypeVar("Answer")


class Way(Protocol):
    """From one broker to where facts are kept.

    Attributes:
        is_cut: nothing gets through.
        answers_lost: of so many of the next changes nobody hears.
    """

    is_cut: bool
    answers_lost: int

    def mend(self) -> None:
        """It is there again."""
        ...


class Facts(Protocol):
    """Where facts are kept.

    Attributes:
        travels: calls take their time on the way itself (ways.py), in the fiber of who calls.
    """

    travels: bool

    def reach(self, world: World) -> tuple[Coordinator, Way, Callable[[], None]]:
        """A broker's coordinator, its way, and what to do when the broker has died."""
        ...

    def find(self, prefix: str) -> list[Fact]:
        """The facts below a prefix."""
        ...

    def copy(self) -> Any:
        """All that is kept now."""
        ...

    def restore(self, copy: Any) -> None:
        """Go back to it."""
        ...


def make_facts(kind: str, world: World, clock: SimulatedClock) -> Facts:
    """Facts of this kind, on a server with this clock."""
    if kind == "sqlite":
        return SqliteFacts(clock)
    if kind == "etcd":
        return EtcdFacts(world, clock)
    if kind == "redis":
        return RedisFacts(clock)
    if kind == "jetstream":
        return JetStreamFacts(world)
    if kind == "zookeeper":
        return ZooKeeperFacts(world, clock)
    if kind == "parent":
        return ParentFacts(world, clock)
    return MemoryFacts(
        clock, at=lambda instant_us, call: world.after(instant_us - world.now_us, call)
    )


class MemoryFacts(ProcessFacts):
    """Facts in memory."""

    travels = False

    def reach(self, world: World) -> tuple[Coordinator, Way, Callable[[], None]]:
        """See Facts.reach."""
        coordinator = self.open()
        return coordinator, coordinator, coordinator.bells.close


# --- how a broker reads them ----------------------------------------------------------------------


class LateReader(Coordinator):
    """A coordinator whose calls take time, and whose lists may not be whole, or are older ones.

    Args:
        times: what each broker wrote of its clock.

    Attributes:
        lists_spoilt: so many of the next lists.
        die: to be called when the broker has died.
    """

    def __init__(
        self, facts: Facts, times: dict[str, Fact], world: World, fibers: Fibers, late_us_max: int
    ) -> None:
        self._inner, self._way, self.die = facts.reach(world)
        self.summary = self._inner.summary
        self._world, self._fibers = world, fibers
        self._travels = facts.travels
        self.late_us_max = late_us_max
        self._before: dict[str, list[Fact]] = {}
        self._times = times
        self.lists_spoilt = 0

    @property
    def late_us_max(self) -> int:
        """So long some calls take at most, each way; 0 = none takes any time."""
        return self._late_us_max

    @late_us_max.setter
    def late_us_max(self, late_us_max: int) -> None:
        self._late_us_max = late_us_max
        if isinstance(self._way, FarWay):
            self._way.late_us_max = late_us_max

    def end_watches(self, *, silently: bool) -> None:
        """What a server pushes to this broker comes no more, where one does."""
        if isinstance(self._way, FarWay):
            self._way.end_watches(silently=silently)

    @property
    def is_cut(self) -> bool:
        """True while nothing gets through."""
        return self._way.is_cut

    @is_cut.setter
    def is_cut(self, is_cut: bool) -> None:
        self._way.is_cut = is_cut

    def cut(self) -> None:
        """Nothing gets through until `mend`."""
        self._way.is_cut = True

    def mend(self) -> None:
        """Everything gets through."""
        self._way.mend()

    def lose_answers(self, count: int) -> None:
        """Nobody hears of so many of the next changes."""
        self._way.answers_lost = count

    def _reach(self) -> None:
        if self._way.is_cut:
            raise Unavailable("the coordinator is out of reach")

    def _travel_us(self) -> int:
        is_late = self._world.chance(0.05)
        longest_us = self.late_us_max if is_late else 3_000
        return self._world.between(20, max(20, longest_us))

    def _far(self, call: Callable[[], Answer]) -> Answer:
        """Ask, where somebody may wait: what was sent arrives, also when its sender is dead."""
        world, fibers = self._world, self._fibers
        if fibers.life.over:
            raise Gone
        if self._travels or not self.late_us_max or getcurrent() is fibers.hub:
            return call()
        answer: FiberFuture[Answer] = FiberFuture(fibers)

        def arrive() -> None:
            try:
                found = call()
            except (DejaQError, Conflict) as error:
                come = partial(answer.set_exception, error)
            else:
                come = partial(answer.set_result, found)
            world.after(self._travel_us(), come)

        self._reach()
        world.after(self._travel_us(), arrive)
        found = answer.result()
        self._reach()
        return found

    def get(self, key: str) -> Fact | None:
        """See Coordinator.get."""
        return self._far(lambda: self._inner.get(key))

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """See Coordinator.put. Nobody is told of times: no chance is drawn for it."""
        if key.startswith(CLOCKS):
            self._reach()
            self._times[key] = Fact(key, value, 1)
            return 1
        return self._far(lambda: self._inner.put(key, value, revision, ttl_ms=ttl_ms))

    def renew(self, key: str) -> bool:
        """See Coordinator.renew."""
        return self._far(lambda: self._inner.renew(key))

    def delete(self, key: str, revision: int | None = None) -> bool:
        """See Coordinator.delete."""
        if key.startswith(CLOCKS):
            return self._times.pop(key, None) is not None
        return self._far(lambda: self._inner.delete(key, revision))

    def list(self, prefix: str) -> list[Fact]:
        """See Coordinator.list."""
        if prefix == CLOCKS:
            self._reach()
            return [self._times[key] for key in sorted(self._times)]
        facts = self._far(lambda: self._inner.list(prefix))
        if self.lists_spoilt:
            self.lists_spoilt -= 1
            if prefix in self._before and self._world.chance(0.5):
                return self._before[prefix]
            return [fact for fact in facts if self._world.chance(0.5)]
        self._before[prefix] = facts
        return facts

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """See Coordinator.watch."""
        return self._inner.watch(prefix, bell)

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """See Coordinator.watch_keys."""
        return self._inner.watch_keys(prefix, bell)

    def close(self) -> None:
        """See Coordinator.close."""
        self._inner.close()


@contextlib.contextmanager
def coordinators_in_fibers() -> Iterator[None]:
    """For as long as this lasts coordinators know fibers and the world's time, and no others."""
    threads = fiber_threads()
    times = SimpleNamespace(monotonic=lambda: fibers_now().world.now_us / 1e6)
    with pytest.MonkeyPatch.context() as patch:
        for module in (counted, etcd, jetstream, parent_facts):
            patch.setattr(module, "threading", threads)
        for module in (zookeeper, zookeeper_sessions):
            patch.setattr(module, "threading", threads)
            patch.setattr(module, "time", times)
        patch.setattr(ZooKeeperFacts, "ways", {})
        patch.setattr(zookeeper_sessions, "load", simulated_kazoo(load))
        for module in (counted, jetstream):
            patch.setattr(module, "time", times)
        patch.setattr(facts_server, "socket", fiber_sockets())
        queues = fiber_queues()
        for module in (jetstream, parent_facts):
            patch.setattr(module, "queue", queues)
        patch.setattr(parent_facts, "Future", fiber_future)
        yield
