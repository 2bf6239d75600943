"""Facts in a simulated etcd, over httpx. See coordinators.Facts.

EtcdCoordinator and its gateway are the product's, down to httpx; the server is etcd_server.py.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from dejaqueue.connections.etcd import EtcdGateway, parse_url
from dejaqueue.coordinator import etcd
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.errors import DejaQError
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.etcd_server import EtcdServer, line
from tests.simulation.cluster.fibers import Waiter
from tests.simulation.cluster.stand_ins import fibers_now
from tests.simulation.cluster.ways import PlainWay


class EtcdFacts:
    """Facts in a simulated etcd.

    Attributes:
        server: what it keeps.
        lives: it was restored so often.
        waiters: who wants to hear of the next change.
    """

    travels = False

    def __init__(self, world: World, clock: SimulatedClock) -> None:
        self._world = world
        self.server = EtcdServer(lambda: clock.now_us() // 1_000)
        self.lives = 0
        self.waiters: list[Waiter] = []

    def reach(self, world: World) -> tuple[Coordinator, PlainWay, Callable[[], None]]:
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
