"""Facts in a simulated ZooKeeper, and kazoo's client in front of it.

ZooKeeperCoordinator and ZooKeeperSession are the product's. A client tells of itself three times
in the time of its session, as long as its broker does anything: a broker that sleeps for longer
wakes up without its session, and without what that held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

from kazoo.exceptions import ConnectionLoss, SessionExpiredError

from dejaqueue.connections.zookeeper import parse_url
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.coordinator.zookeeper import ZooKeeperCoordinator
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.fibers import Waiter
from tests.simulation.cluster.stand_ins import fibers_here, fibers_now
from tests.simulation.cluster.ways import FarWay
from tests.simulation.cluster.zookeeper_server import TICK_US, Op, Watch, ZooKeeperServer

FACTS = "/dejaq/facts"


class ZooKeeperFacts:
    """Facts in a simulated ZooKeeper. See coordinators.Facts.

    Attributes:
        server: what it keeps.
        lives: it was restored so often.
    """

    travels = True
    ways: ClassVar[dict[str, tuple[ZooKeeperFacts, FarWay]]] = {}
    """By the name under which a broker reaches its servers, of all that are simulated."""

    def __init__(self, world: World, clock: SimulatedClock) -> None:
        self.server = ZooKeeperServer(clock.now_us)
        self.lives = 0
        self._world = world
        world.after(TICK_US, self._tick)

    def _tick(self) -> None:
        self.server.expire()
        self._world.after(TICK_US, self._tick)

    def reach(self, world: World) -> tuple[Coordinator, FarWay, Callable[[], None]]:
        """See Facts.reach."""
        way = FarWay(world)
        name = f"way{len(self.ways)}:2181"
        self.ways[name] = self, way
        return ZooKeeperCoordinator(parse_url(f"zookeeper://{name}")), way, lambda: None

    def find(self, prefix: str) -> list[Fact]:
        """See Facts.find."""
        facts = [
            Fact(path.removeprefix(f"{FACTS}/=").replace(":", "/"), node.value, node.stat.mzxid)
            for path, node in self.server.nodes.items()
            if path.startswith(f"{FACTS}/=")
        ]
        return sorted((one for one in facts if one.key.startswith(prefix)), key=lambda one: one.key)

    def copy(self) -> ZooKeeperServer:
        """See Facts.copy."""
        return self.server.copy()

    def restore(self, copy: ZooKeeperServer) -> None:
        """See Facts.restore. All connections break, and sessions since then are unknown."""
        self.server = copy.copy()
        for session in self.server.sessions.values():  # their time begins anew
            self.server.hear(session.number)
        self.lives += 1


class Promise:
    """In place of kazoo's AsyncResult: an answer that comes, or does not."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._answer: Callable[[], Any] | None = None
        self._waiters: list[Waiter] = []

    def give(self, answer: Callable[[], Any]) -> None:
        """It is there, once."""
        if self._answer is None:
            self._answer = answer
            for waiter in self._waiters:
                waiter.tell()

    def get(self, timeout: float) -> Any:
        """See AsyncResult.get."""
        fibers = fibers_here()
        if self._answer is None and fibers is not None:
            waiter = Waiter(fibers)
            self._waiters.append(waiter)
            waiter.wait(fibers.world.now_us + int(timeout * 1e6) + 1)
        if self._answer is None:
            raise self._client.handler.timeout_exception
        return self._answer()


class KazooClient:
    """In place of kazoo's: one session, over one connection at a time."""

    def __init__(self, *, hosts: str, timeout: float, handler: Any, **_: Any) -> None:
        self._facts, self._way = ZooKeeperFacts.ways[hosts]
        self.handler = handler
        self._asked_us = round(timeout * 1_000_000)
        self._timeout_us = self._session = self._lives = 0
        self._listeners: list[Callable[[str], None]] = []
        self._pending: dict[Promise, None] = {}
        self._watches: list[Watch] = []
        self._is_up = self._is_over = False
        self._sent_us = self._answered_us = 0
        self._connection = SimpleNamespace(_connect=self._connect)
        self._stopped = SimpleNamespace(set=self._drop)

    # --- its session --------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """See KazooClient.add_listener."""
        self._listeners.append(listener)

    def start(self, timeout: float) -> None:
        """See KazooClient.start."""
        fibers = fibers_now()
        world = self._way.world
        until_us = world.now_us + int(timeout * 1e6)
        self._way.on_end.append(self._break)
        while not self._try():
            if world.now_us >= until_us:
                raise self.handler.timeout_exception
            fibers.pass_time(100_000)
        if self._way.late_us_max:
            fibers.pass_time(self._way.travel_us())
        self._tick_later()

    def _connect(self) -> tuple[float, float]:
        """What is noted of it: for how long it reads, and how long a connection may take."""
        return self._timeout_us / 1_500, 10_000.0

    def _try(self) -> bool:
        if self._way.is_cut:
            return False
        session = self._facts.server.connect(self._session, self._asked_us)
        if session is None:
            self._session = 0
            self._tell("LOST")
            return self._try()
        self._session, self._timeout_us = session.number, session.timeout_us
        self._lives, self._is_up = self._facts.lives, True
        self._connection._connect()
        self._tell("CONNECTED")
        return True

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    def _tick_later(self) -> None:
        fibers = fibers_now()
        self._way.world.after(self._timeout_us // 3, self._tick, fibers.life)

    def _tick(self) -> None:
        """Say that it lives, notice that nobody answers, or connect again."""
        if self._is_over:
            return
        if self._is_up and (self._way.is_cut or self._lives != self._facts.lives):
            self._break(True)
        elif self._is_up:
            if self._session in self._facts.server.sessions:
                self._facts.server.hear(self._session)
            else:  # it slept, or was cut off, for too long
                self._break(True)
        else:
            self._try()
        self._tick_later()

    def _break(self, _: bool) -> None:
        """The connection is gone: what was asked has no answer, and nobody hears of changes."""
        if not self._is_up:
            return
        self._is_up = False
        self._facts.server.forget(self._watches)
        self._watches.clear()
        pending, self._pending = self._pending, {}
        for promise in pending:
            promise.give(partial(_fail, ConnectionLoss()))
        self._tell("SUSPENDED")

    def stop(self) -> None:
        """See KazooClient.stop: the session ends, if a server hears of it."""
        if not self._is_over and self._is_up and not self._way.is_cut:
            self._send(lambda server: server.end(self._session))
        self._drop()

    def _drop(self) -> None:
        self._is_over = True
        if self._break in self._way.on_end:
            self._way.on_end.remove(self._break)

    def close(self) -> None:
        """See KazooClient.close."""

    def _safe_close(self) -> None:
        """The connection was dropped."""

    def _call(self, request: object, promise: object) -> None:
        """The same: the request to drop it is the only one that is made so."""

    # --- requests -----------------------------------------------------------------------------

    def get_async(self, path: str, watch: Watch | None = None) -> Promise:
        """See KazooClient.get_async."""
        return self._ask(lambda server: server.get(path, self._watched(watch)))

    def exists_async(self, path: str) -> Promise:
        """See KazooClient.exists_async."""
        return self._ask(lambda server: server.exists(path))

    def get_children_async(self, path: str, watch: Watch | None = None) -> Promise:
        """See KazooClient.get_children_async."""
        return self._ask(lambda server: server.children(path, self._watched(watch)))

    def set_async(self, path: str, value: bytes) -> Promise:
        """See KazooClient.set_async."""
        return self._one(Op("set", path, value))

    def create_async(self, path: str, value: bytes) -> Promise:
        """See KazooClient.create_async."""
        return self._one(Op("create", path, value))

    def transaction(self) -> Transaction:
        """See KazooClient.transaction."""
        return Transaction(self)

    def command(self, _: bytes) -> str:
        """See KazooClient.command."""
        return "Zookeeper version: 3.9.4-simulated, built on 2026-01-02\n"

    def _one(self, op: Op) -> Promise:
        def change(server: ZooKeeperServer) -> Any:
            (answer,) = server.change(self._session, [op])
            return _fail(answer) if isinstance(answer, Exception) else answer

        return self._ask(change)

    def commit(self, ops: Sequence[Op]) -> Promise:
        """See Transaction."""
        return self._ask(lambda server: server.change(self._session, ops), changes=True)

    def _watched(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None

        def fire(event: object) -> None:
            if self._is_up and not self._way.is_cut:
                self._way.world.after(self._travel_us(), lambda: watch(event))

        self._watches.append(fire)
        return fire

    def _travel_us(self) -> int:
        return self._way.travel_us() if self._way.late_us_max else 0

    def _ask(self, call: Callable[[ZooKeeperServer], Any], *, changes: bool = False) -> Promise:
        promise = Promise(self)
        self._pending[promise] = None

        def come(answer: Callable[[], Any]) -> None:
            if promise in self._pending and not self._way.is_cut:
                del self._pending[promise]
                promise.give(answer)

        def answered(answer: Callable[[], Any]) -> None:
            if changes and self._way.answers_lost:
                self._way.answers_lost -= 1
                self._break(False)
                return
            travel_us = self._travel_us()
            if not travel_us:
                come(answer)
                return
            world = self._way.world
            self._answered_us = max(self._answered_us + 1, world.now_us + travel_us)
            world.after(self._answered_us - world.now_us, lambda: come(answer))

        if self._is_up and not self._way.is_cut:
            self._send(call, answered)
        return promise

    def _send(
        self,
        call: Callable[[ZooKeeperServer], Any],
        answered: Callable[[Callable[[], Any]], None] = lambda answer: None,
    ) -> None:
        """What was sent arrives in its order, unless its session has ended."""
        facts, session, lives = self._facts, self._session, self._lives

        def arrive() -> None:
            server = facts.server
            server.expire()
            if lives != facts.lives:
                return  # the connection is gone
            if session not in server.sessions:
                answered(partial(_fail, SessionExpiredError()))
                return
            server.hear(session)
            try:
                found = call(server)
            except Exception as wrong:  # noqa: BLE001 - whoever asked gets it
                answered(partial(_fail, wrong))
            else:
                answered(lambda: found)

        travel_us, world = self._travel_us(), self._way.world
        if not travel_us:
            arrive()
            return
        self._sent_us = max(self._sent_us + 1, world.now_us + travel_us)
        world.after(self._sent_us - world.now_us, arrive)


class Transaction:
    """In place of kazoo's TransactionRequest."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._ops: list[Op] = []

    def create(self, path: str, value: bytes, *, ephemeral: bool) -> None:
        """See TransactionRequest.create."""
        self._ops.append(Op("create", path, value, ephemeral=ephemeral))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        """See TransactionRequest.set_data."""
        self._ops.append(Op("set", path, value, version))

    def delete(self, path: str) -> None:
        """See TransactionRequest.delete."""
        self._ops.append(Op("delete", path))

    def commit_async(self) -> Promise:
        """See TransactionRequest.commit_async."""
        return self._client.commit(self._ops)


def _fail(wrong: Exception) -> Any:
    raise wrong


def simulated_kazoo(load: Callable[..., Any]) -> Callable[..., Any]:
    """In place of `load` of connections/extras.py: kazoo's client is this one."""

    def load_simulated(name: str, *given: Any) -> Any:
        if name == "kazoo.client":
            return SimpleNamespace(KazooClient=KazooClient)
        return load(name, *given)

    return load_simulated
