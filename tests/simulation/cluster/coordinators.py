"""What the brokers of a simulated cluster agree on, and how each reaches it.

Three kinds, of which the plan names one: facts in memory; the coordinator for SQL over a file of
SQLite; the one for etcd over a simulated server. The code of the latter two is the product's, down
to SQLite itself and to httpx; what it knows as threads and as the time is the simulation's.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast

import httpx
import pytest
from greenlet import getcurrent

from dejaqueue.cluster.clocks import PREFIX as CLOCKS
from dejaqueue.connections.etcd import EtcdGateway, parse_url
from dejaqueue.connections.sql import Row, SqlConnection, SqlFailure, Verdict
from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.coordinator import counted, etcd, sql
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.coordinator.sql import SqlCoordinator
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.etcd_server import EtcdServer, line
from tests.simulation.cluster.fibers import Fibers, Waiter
from tests.simulation.cluster.threads import FiberFuture

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


@dataclass
class PlainWay:
    """See Way."""

    is_cut: bool = False
    answers_lost: int = 0

    def mend(self) -> None:
        """See Way.mend."""
        self.is_cut = False


class Facts(Protocol):
    """Where facts are kept."""

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
    return MemoryFacts(
        clock, at=lambda instant_us, call: world.after(instant_us - world.now_us, call)
    )


class MemoryFacts(ProcessFacts):
    """Facts in memory."""

    def reach(self, world: World) -> tuple[Coordinator, Way, Callable[[], None]]:
        """See Facts.reach."""
        coordinator = self.open()
        return coordinator, coordinator, coordinator.bells.close


# --- SQLite ---------------------------------------------------------------------------------------


class SqliteFacts:
    """Facts in a file of SQLite, which reads its clock from the world."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        memory = "/dev/shm"
        directory = tempfile.mkdtemp(dir=memory if Path(memory).is_dir() else None)
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.path = Path(directory) / "facts.db"

    def reach(self, world: World) -> tuple[Coordinator, Way, Callable[[], None]]:
        """See Facts.reach."""
        way = PlainWay()

        def make(url: str, *, exclusive: bool) -> _SimulatedSqlite:
            assert not exclusive
            return _SimulatedSqlite(url, self.clock, way)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sql, "Sqlite", make)
            coordinator = cast(SqlCoordinator, open_coordinator(f"sqlite:///{self.path}"))
        return coordinator, way, coordinator._connections.close

    def _look(self, statement: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(statement).fetchall()

    def find(self, prefix: str) -> list[Fact]:
        """See Facts.find. What has vanished and nobody noticed is among them."""
        rows = self._look(f"SELECT name, content, revision FROM {sql.FACTS} ORDER BY name")
        return [Fact(name, value, at) for name, value, at in rows if name.startswith(prefix)]

    def copy(self) -> Any:
        """See Facts.copy."""
        if not self.path.exists():
            return [], [(1, 0)]
        rows = self._look(f"SELECT * FROM {sql.FACTS}")
        return rows, self._look(f"SELECT * FROM {sql.COUNTER}")

    def restore(self, copy: Any) -> None:
        """See Facts.restore."""
        facts, counter = copy
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(f"DELETE FROM {sql.FACTS}")
            connection.execute(f"DELETE FROM {sql.COUNTER}")
            connection.executemany(f"INSERT INTO {sql.FACTS} VALUES (?, ?, ?, ?, ?)", facts)
            connection.executemany(f"INSERT INTO {sql.COUNTER} VALUES (?, ?)", counter)


class _SimulatedSqlite(Sqlite):
    """A file of SQLite that can be out of reach, as a server can."""

    def __init__(self, url: str, clock: SimulatedClock, way: PlainWay) -> None:
        super().__init__(url, exclusive=False)
        self._clock, self._way = clock, way

    def connect(self) -> SqlConnection:
        """See SqlServer.connect."""
        if self._way.is_cut:
            raise SqlFailure(Verdict.UNKNOWN, "out of reach")
        connection: Any = super().connect()
        connection._inner.create_function("strftime", 2, self._strftime)
        return _Line(connection, self._way)

    def _strftime(self, form: str, _: str) -> str:
        seconds, ms = divmod(self._clock.now_us() // 1_000, 1_000)
        return str(seconds) if form == "%s" else f"{seconds % 60:02}.{ms:03}"


sql._NOW_MS[_SimulatedSqlite] = sql._NOW_MS[Sqlite]


class _Line(SqlConnection):
    """A connection that breaks when its server is out of reach."""

    def __init__(self, inner: SqlConnection, way: PlainWay) -> None:
        self._inner, self._way = inner, way
        self._is_in_transaction = False

    def _check(self) -> None:
        if self._way.is_cut:
            self._break()

    def _break(self) -> None:
        self.broken = True
        raise SqlFailure(Verdict.UNKNOWN, "no answer")

    def _answer(self) -> None:
        if self._way.answers_lost and not self._is_in_transaction:
            self._way.answers_lost -= 1
            self._break()

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """See SqlConnection.rows."""
        self._check()
        return self._inner.rows(statement, parameters)

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """See SqlConnection.change."""
        self._check()
        count = self._inner.change(statement, parameters)
        self._answer()
        return count

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        """See SqlConnection.stream."""
        self._check()
        return self._inner.stream(statement, parameters)

    def begin(self) -> None:
        """See SqlConnection.begin."""
        self._check()
        self._inner.begin()
        self._is_in_transaction = True

    def commit(self) -> None:
        """See SqlConnection.commit."""
        self._inner.commit()
        self._is_in_transaction = False
        self._answer()

    def roll_back(self) -> None:
        """See SqlConnection.roll_back."""
        self._is_in_transaction = False
        self._inner.roll_back()

    def close(self) -> None:
        """See SqlConnection.close."""
        self._inner.close()


# --- etcd -----------------------------------------------------------------------------------------


class EtcdFacts:
    """Facts in a simulated etcd.

    Attributes:
        server: what it keeps.
        lives: it was restored so often.
        waiters: who wants to hear of the next change.
    """

    def __init__(self, world: World, clock: SimulatedClock) -> None:
        self._world = world
        self.server = EtcdServer(lambda: clock.now_us() // 1_000)
        self.lives = 0
        self.waiters: list[Waiter] = []

    def reach(self, world: World) -> tuple[Coordinator, Way, Callable[[], None]]:
        """See Facts.reach."""
        way = PlainWay()
        gateway = EtcdGateway(parse_url("etcd://one,two"))
        gateway._client.close()
        transport = _Transport(self, way, world)
        gateway._client = httpx.Client(transport=transport, trust_env=False)
        try:
            gateway.open()
        except DejaQError:
            gateway.close()
            raise
        return etcd.EtcdCoordinator(gateway), way, gateway.close

    def find(self, prefix: str) -> list[Fact]:
        """See Facts.find."""
        self.server.expire()
        space, rows = b"dejaq/", sorted(self.server.rows.items())
        facts = [Fact(k.removeprefix(space).decode(), r.value, r.changed) for k, r in rows]
        return [fact for fact in facts if fact.key.startswith(prefix)]

    def copy(self) -> EtcdServer:
        """See Facts.copy."""
        return self.server.copy()

    def restore(self, copy: EtcdServer) -> None:
        """See Facts.restore."""
        self.server = copy.copy()
        self.lives += 1
        self.tell()

    def tell(self) -> None:
        """Something changed."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.tell()


class _Transport(httpx.BaseTransport):
    """A broker's connections to the members of an etcd."""

    def __init__(self, facts: EtcdFacts, way: PlainWay, world: World) -> None:
        self._facts, self._way, self._world = facts, way, world

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, or not."""
        if self._way.is_cut:
            gone = self._world.random.choice([httpx.ConnectError, httpx.ReadTimeout])
            raise gone("out of reach", request=request)
        path = request.url.path
        body = json.loads(request.content) if request.content else {}
        if path == "/v3/watch":
            return httpx.Response(200, stream=_Changes(self._facts, self._way, body))
        server = self._facts.server
        before = server.revision
        answer = server.call(path, body)
        if server.revision != before:
            self._facts.tell()
        changes = path == "/v3/kv/txn" or path.startswith("/v3/lease")
        if changes and self._way.answers_lost:
            self._way.answers_lost -= 1
            raise httpx.ReadTimeout("no answer", request=request)
        return httpx.Response(400 if "code" in answer else 200, json=answer)


class _Changes(httpx.SyncByteStream):
    """The stream of changes: whoever reads it waits for the next one."""

    LOOK_US = 250_000
    """Leases end without anybody asking for it."""
    SILENCE_US = 2_000_000

    def __init__(self, facts: EtcdFacts, way: PlainWay, body: dict[str, Any]) -> None:
        create = body["create_request"]
        self._facts, self._way = facts, way
        self._first, self._end = (base64.b64decode(create[k]) for k in ("key", "range_end"))
        self._next = int(create.get("start_revision", 0)) or facts.server.revision + 1
        self._lives = facts.lives

    def __iter__(self) -> Iterator[bytes]:
        fibers, facts = fibers_now(), self._facts
        yield line({"header": {"revision": str(facts.server.revision)}, "created": True})
        silent_us = fibers.world.now_us
        while facts.lives == self._lives:
            if self._way.is_cut or fibers.world.now_us - silent_us > self.SILENCE_US:
                raise httpx.ReadTimeout("silence")
            facts.server.expire()
            found = facts.server.since(self._next, self._first, self._end)
            self._next = facts.server.revision + 1
            if found:
                silent_us = fibers.world.now_us
                header = {"revision": str(facts.server.revision)}
                yield line({"header": header, "events": [event for _, event in found]})
            waiter = Waiter(fibers)
            facts.waiters.append(waiter)
            waiter.wait(fibers.world.now_us + self.LOOK_US)


# --- how a broker reads them ----------------------------------------------------------------------


class LateReader(Coordinator):
    """A coordinator whose calls take time, and whose lists may not be whole, or are older ones.

    Args:
        times: what each broker wrote of its clock.

    Attributes:
        late_us_max: so long some calls take at most, each way; 0 = none takes any time.
        lists_spoilt: so many of the next lists.
        die: to be called when the broker has died.
    """

    def __init__(
        self, facts: Facts, times: dict[str, Fact], world: World, fibers: Fibers, late_us_max: int
    ) -> None:
        self._inner, self._way, self.die = facts.reach(world)
        self.summary = self._inner.summary
        self._world, self._fibers = world, fibers
        self.late_us_max = late_us_max
        self._before: dict[str, list[Fact]] = {}
        self._times = times
        self.lists_spoilt = 0

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
        if not self.late_us_max or getcurrent() is fibers.hub:
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


# --- threads and time of the coordinators ---------------------------------------------------------


def fibers_now() -> Fibers:
    """Of the broker whose fiber runs."""
    found: Fibers = getcurrent().fibers
    return found


class _Thread:
    """In place of threading.Thread."""

    def __init__(
        self, *, target: Callable[..., None], name: str, daemon: bool, args: Sequence[Any] = ()
    ) -> None:
        self._target, self._fibers = partial(target, *args), fibers_now()
        self._over = False

    def start(self) -> None:
        """It runs a little later."""
        world = self._fibers.world
        world.after(world.between(10, 5_000), self._run, self._fibers.life)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._over = True

    def join(self, seconds: float | None = None) -> None:
        """Return when it has ended; nobody waits in vain here."""
        self._fibers.pass_until(lambda: self._over)


class _Event:
    """In place of threading.Event."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[Waiter] = []

    def set(self) -> None:
        """Whoever waits goes on."""
        self._is_set = True
        for waiter in self._waiters:
            waiter.tell()

    def clear(self) -> None:
        """Whoever waits from now on waits for the next `set`."""
        self._is_set = False

    def is_set(self) -> bool:
        """True after `set`."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, or for so many seconds."""
        if not self._is_set:
            fibers = fibers_now()
            waiter = Waiter(fibers)
            self._waiters = [waiter]
            waiter.wait(fibers.world.now_us + int(seconds * 1e6) + 1)
        return self._is_set


def fiber_threads() -> SimpleNamespace:
    """In place of the module threading, for what waits in no lock."""
    return SimpleNamespace(
        Thread=_Thread, Event=_Event, Lock=threading.Lock, current_thread=lambda: None
    )


@contextlib.contextmanager
def coordinators_in_fibers() -> Iterator[None]:
    """For as long as this lasts coordinators know fibers and the world's time, and no others."""
    threads = fiber_threads()
    times = SimpleNamespace(monotonic=lambda: fibers_now().world.now_us / 1e6)
    with pytest.MonkeyPatch.context() as patch:
        for module in (counted, etcd):
            patch.setattr(module, "threading", threads)
        patch.setattr(counted, "time", times)
        yield
