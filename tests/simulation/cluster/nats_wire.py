"""How nodes reach simulated NATS servers: a connection, and the processes that they start.

`NatsConnection` is replaced where it waits for a socket, and no further: what it asks and how it
reads the answers is the product's. In place of the modules that child.py knows processes by stand
others, which know none but those of the simulation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from dejaqueue.cluster import care, child, disk, jetstream, servers
from dejaqueue.connections.nats import connection, monitor
from dejaqueue.connections.nats.answers import Reply
from dejaqueue.connections.nats.connection import TIMEOUT_S, NatsConnection
from dejaqueue.connections.nats.url import NatsUrl
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats import store, watch
from tests.simulation.cluster.fibers import FiberClock, Waiter
from tests.simulation.cluster.nats_servers import NatsServer, NatsServers
from tests.simulation.cluster.stand_ins import fiber_threads, fibers_now

ANSWER_US_MAX = 20_000
STOP_US_MAX = 1_500_000
LOST_SHARE = 0.02
"""Of requests, and of answers."""


class SimulatedConnection(NatsConnection):
    """A connection to one of the servers that answers, as long as it does."""

    there: NatsServers
    """Set for each simulation."""

    def __init__(self, url: NatsUrl, servers: Sequence[str] = (), *, as_system: bool = False):
        self.url = url
        self._as_system, self._closed = as_system, False
        self._servers = tuple(servers or url.servers)
        self._server: NatsServer | None = None
        self._pass(ANSWER_US_MAX)
        if self._connected() is None:
            raise Unavailable(f"{url!r}: no server answers")

    @staticmethod
    def _pass(longest_us: int) -> None:
        fibers = fibers_now()
        fibers.pass_time(fibers.world.between(20, longest_us))

    def _connected(self) -> NatsServer | None:
        there, server = self.there, self._server
        if server is None or not there.answers(server):
            places = {one.place: one for one in there.servers.values() if there.answers(one)}
            found = [places[place] for place in self._servers if place in places]
            self._server = server = found[0] if found else None
        return None if self._closed else server

    @property
    def is_connected(self) -> bool:
        """See NatsConnection.is_connected."""
        return self._connected() is not None

    @property
    def server_version(self) -> str:
        """See NatsConnection.server_version."""
        return "2.15.1"

    @property
    def payload_bytes_max(self) -> int:
        """See NatsConnection.payload_bytes_max."""
        return 8 << 20

    def publish_all(
        self,
        subject: str,
        messages: Sequence[tuple[dict[str, str], bytes]],
        timeout_s: float = TIMEOUT_S,
    ) -> list[Reply | None]:
        """See NatsConnection.publish_all: of the API alone."""
        self._pass(ANSWER_US_MAX)
        server = self._connected()
        if server is None:
            raise Unavailable(f"{self.url!r}: no connection to any server")
        name = subject.removeprefix("$JS.API.")
        [(_, content)] = messages
        fate, answer = fibers_now().world.random.random(), None
        if fate > LOST_SHARE:
            answer = self._ask(server, name, json.loads(content) if content else {})
        if answer is None or fate < 2 * LOST_SHARE:
            fibers_now().pass_time(int(timeout_s * 1_000_000))
            return [None]
        self._pass(ANSWER_US_MAX)
        return [Reply(subject, json.dumps(answer).encode())]

    def _ask(self, server: NatsServer, name: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        if name != "INFO":
            return self.there.call(name, asked)
        if server.is_off:
            error = {"code": 503, "err_code": 10039, "description": "JetStream is not enabled"}
            return {"error": error}
        return {} if self.there.leader else None

    def replies(
        self, subject: str, content: bytes = b"", timeout_s: float = TIMEOUT_S
    ) -> Iterator[Reply]:
        """See NatsConnection.replies: what servers say of themselves."""
        if self._connected() is None:
            raise Unavailable(f"{self.url!r}: no connection to any server")
        wanted = json.loads(content).get("server_name")
        for server in list(self.there.servers.values()):
            if self.there.answers(server) and wanted in (None, server.name):
                self._pass(ANSWER_US_MAX)
                yield Reply(subject, json.dumps(self.there.jsz(server)).encode())
        fibers_now().pass_time(int(timeout_s * 1_000_000))
        raise Unavailable(f"{self.url!r}: {subject}: no answer")

    def close(self) -> None:
        """See NatsConnection.close."""
        self._closed = True


# --- processes ------------------------------------------------------------------------------------


class Process:
    """A process of a server, in place of subprocess.Popen.

    Attributes:
        is_deaf: it does not end when it is asked to.
    """

    def __init__(self, pid: int, server: NatsServer, command: Sequence[str], there: NatsServers):
        self.pid, self.server, self.command, self._there = pid, server, command, there
        self.is_over = self.is_deaf = False
        self.stdout = self
        self._waiters: list[Waiter] = []
        there.begin(server)

    def poll(self) -> int | None:
        """None while it runs."""
        return 0 if self.is_over else None

    def terminate(self) -> None:
        """Ask it to end."""
        if not self.is_deaf:
            world = self._there.world
            world.after(world.between(1_000, STOP_US_MAX), self.kill)

    def kill(self) -> None:
        """It ends at once."""
        if not self.is_over:
            self.is_over = True
            self._there.end(self.server)
            self.tell()

    def tell(self) -> None:
        """Who waits for a line or for its end goes on."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.tell()

    def wait(self, until_us: int | None = None) -> bool:
        """Return when it has ended, or at that time; whether it has."""
        world = self._there.world
        while not self.is_over and (until_us is None or world.now_us < until_us):
            self._wait_for_news(until_us)
        return self.is_over

    def _wait_for_news(self, until_us: int | None) -> None:
        waiter = Waiter(fibers_now())
        self._waiters.append(waiter)
        waiter.wait(until_us)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Its output needs no closing."""

    def __iter__(self) -> Iterator[str]:
        """What it writes, line by line, until it ends."""
        while True:
            while self.server.lines:
                yield self.server.lines.pop(0) + "\n"
            if self.is_over:
                return
            self._wait_for_news(None)


class Processes:
    """All processes of servers; what the modules about processes are for child.py.

    Attributes:
        refuses: none can be started.
    """

    def __init__(self, there: NatsServers) -> None:
        self._there = there
        self.all: dict[int, Process] = {}
        self._made: dict[str, NatsServer] = {}
        self.refuses = False

    def of(self, name: str) -> Process | None:
        """The newest process of a server that runs."""
        found = [one for one in self.all.values() if one.server.name == name and not one.is_over]
        return found[-1] if found else None

    def popen(self, command: Sequence[str], **_: Any) -> Process:
        """See subprocess.Popen."""
        if self.refuses:
            raise OSError(12, "cannot allocate memory")
        program = command[-3:]
        server = self._server_of(Path(program[-1]))
        assert self.of(server.name) is None, "two servers on one directory"
        process = Process(1_000 + len(self.all), server, program, self._there)
        self.all[process.pid] = process
        return process

    def _server_of(self, settings: Path) -> NatsServer:
        """As its settings name it."""
        words = dict(
            line.strip().split(": ", 1)
            for line in settings.read_text().splitlines()
            if ": " in line
        )
        name, store = json.loads(words["server_name"]), Path(json.loads(words["store_dir"]))
        if name not in self._made:
            listen = next(
                line for line in settings.read_text().splitlines() if line.startswith("listen: ")
            )
            place = json.loads(listen.removeprefix("listen: "))
            self._made[name] = NatsServer(name, place, store / "jetstream")
        return self._made[name]

    def end_those_of(self, name: str, *, soon: bool) -> None:
        """Its broker is dead: the system tells it to end; or it does not, for a while."""
        process = self.of(name)
        if process is not None and soon:
            process.terminate()

    def signal(self, pid: int, sign: int) -> None:
        """See os.kill."""
        process = self.all.get(pid)
        if process is None or process.is_over:
            raise ProcessLookupError
        if sign == signal.SIGTERM:
            process.terminate()
        elif sign == signal.SIGKILL:
            process.kill()

    def pidfd_open(self, pid: int) -> int:
        """See os.pidfd_open."""
        if self.all[pid].is_over:
            raise ProcessLookupError
        return pid

    def select(
        self, readable: Sequence[int], _: object, __: object, timeout_s: float
    ) -> tuple[list[int], list[int], list[int]]:
        """See select.select."""
        process = self.all[readable[0]]
        until_us = self._there.world.now_us + int(timeout_s * 1_000_000)
        return ([process.pid] if process.wait(until_us) else []), [], []

    def path(self, name: str) -> Any:
        """A file of /proc."""
        pid = int(name.split("/")[2])

        def read_bytes() -> bytes:
            process = self.all.get(pid)
            if process is None or process.is_over:
                raise FileNotFoundError
            return b"\0".join(word.encode() for word in process.command)

        return SimpleNamespace(read_bytes=read_bytes)


class _Mutex:
    """In place of threading.Lock: its holder may wait."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiters: deque[Waiter] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        """See threading.Lock.acquire."""
        while self._is_held:
            if not blocking:
                return False
            waiter = Waiter(fibers_now())
            self._waiters.append(waiter)
            waiter.wait()
        self._is_held = True
        return True

    def release(self) -> None:
        """See threading.Lock.release."""
        self._is_held = False
        if self._waiters:
            self._waiters.popleft().tell()

    def __enter__(self) -> _Mutex:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def use_simulated_servers(
    patch: pytest.MonkeyPatch,
    there: NatsServers,
    processes: Processes,
    statvfs: Callable[[Path], Any],
    fsync: Callable[[int], None],
) -> None:
    """Have nodes know these servers and processes, fibers, and the world's time, and no others."""
    threads = fiber_threads()
    threads.Lock = _Mutex
    for module in (servers, disk, child, jetstream, care, watch):
        patch.setattr(module, "threading", threads)

    def clock() -> FiberClock:
        return FiberClock(fibers_now())

    for module in (jetstream, servers):
        patch.setattr(module, "SystemClock", clock)
    patch.setattr(connection, "SteadyClock", clock)
    patch.setattr(SimulatedConnection, "there", there, raising=False)
    for module in (jetstream, care, monitor, store):
        patch.setattr(module, "NatsConnection", SimulatedConnection)
    patch.setattr(store, "NatsObjects", lambda *given: None)

    def find_damage(
        _: object, stream: str, server: str, first: int, end: int, **more: object
    ) -> int | None:
        fibers_now().pass_time(1_000)
        if not there.is_alive(server):
            raise Unavailable("it does not answer")
        copy = there.servers[server].copies.get(stream)
        missing = [] if copy is None else [one for one in copy.missing if first <= one < end]
        return min(missing, default=None)

    patch.setattr(watch, "find_damage", find_damage)
    system = SimpleNamespace(**vars(os))
    system.kill, system.pidfd_open = processes.signal, processes.pidfd_open
    system.close = lambda handle: None
    patch.setattr(child, "os", system)
    patch.setattr(jetstream, "os", SimpleNamespace(**vars(os) | {"kill": processes.signal}))
    patch.setattr(child, "select", SimpleNamespace(select=processes.select))
    patch.setattr(child, "Path", processes.path)
    names = ("DEVNULL", "PIPE", "STDOUT")
    facts = {name: getattr(subprocess, name) for name in names}
    patch.setattr(child, "subprocess", SimpleNamespace(Popen=processes.popen, **facts))
    patch.setattr(disk, "os", SimpleNamespace(statvfs=statvfs, fsync=fsync))
