"""Facts in a simulated Redis: what its scripts do, and its channel of changes.

RedisCoordinator and RedisConnection are the product's; the library's client is in their place
where they make it. A script in Lua is done here in Python, one step of the server each;
tests/conformance/test_simulated_redis.py compares both, answer by answer.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis.exceptions

from dejaqueue.connections import redis as connections
from dejaqueue.connections.redis import WANTED, RedisConnection
from dejaqueue.coordinator import redis as scripts
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.coordinator.redis import RedisCoordinator
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.stand_ins import FiberQueue
from tests.simulation.cluster.ways import FarWay, Lost

Reader = Callable[[bytes], None]


@dataclass
class RedisServer:
    """The keys of one prefix.

    Args:
        now_ms: its clock.

    Attributes:
        counter: of changes.
        readers: who hears of changes.
    """

    now_ms: Callable[[], int]
    values: dict[str, bytes] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    ttls: dict[str, int] = field(default_factory=dict)
    deadlines: dict[str, int] = field(default_factory=dict)
    counter: int = 0
    readers: list[Reader] = field(default_factory=list)

    def run(self, script: str, arguments: Sequence[Any]) -> Any:
        """The answer of a script to all but the channel's name."""
        now_ms = self.now_ms()
        over = [key for key, until_ms in self.deadlines.items() if until_ms <= now_ms]
        for key in sorted(over, key=lambda key: (self.deadlines[key], key)):
            self._drop(key)
        return self._scripts()[script](*arguments)

    def _scripts(self) -> dict[str, Callable[..., Any]]:
        return {
            scripts._GET: self._get,
            scripts._LIST: self._list,
            scripts._PUT: self._put,
            scripts._RENEW: self._renew,
            scripts._DELETE: self._delete,
            scripts._COUNT: lambda: self.counter,
        }

    def copy(self) -> RedisServer:
        """All that is kept now."""
        values, revisions = dict(self.values), dict(self.revisions)
        ttls, deadlines = dict(self.ttls), dict(self.deadlines)
        return RedisServer(self.now_ms, values, revisions, ttls, deadlines, self.counter)

    def _changed(self, key: str) -> int:
        self.counter += 1
        for read in list(self.readers):
            read(f"{self.counter} {key}".encode())
        return self.counter

    def _drop(self, key: str) -> None:
        for kept in (self.values, self.revisions, self.ttls, self.deadlines):
            kept.pop(key, None)
        self._changed(key)

    def _get(self, key: str) -> list[bytes | None]:
        revision = self.revisions.get(key)
        return [self.values.get(key), None if revision is None else b"%d" % revision]

    def _list(self, prefix: str) -> list[bytes]:
        keys = sorted(key for key in self.values if key.startswith(prefix))
        found = ((key.encode(), self.values[key], b"%d" % self.revisions[key]) for key in keys)
        return [part for parts in found for part in parts]

    def _fits(self, key: str, revision: str) -> bool:
        return revision in ("", str(self.revisions.get(key, 0)))

    def _put(self, key: str, revision: str, value: bytes, ttl_ms: str) -> int:
        if not self._fits(key, revision):
            return -1
        number = self._changed(key)
        self.values[key], self.revisions[key] = value, number
        if ttl_ms:
            self.ttls[key] = int(ttl_ms)
            self.deadlines[key] = self.now_ms() + 2 + int(ttl_ms)
        else:
            self.ttls.pop(key, None)
            self.deadlines.pop(key, None)
        return number

    def _renew(self, key: str, revision: str) -> int:
        if str(self.revisions.get(key)) != revision:
            return 0
        if key in self.ttls:
            self.deadlines[key] = self.now_ms() + 2 + self.ttls[key]
        return 1

    def _delete(self, key: str, revision: str) -> int:
        if not self._fits(key, revision):
            return -1
        if key not in self.revisions:
            return 0
        self._drop(key)
        return 1


class RedisFacts:
    """Facts in a simulated Redis. See coordinators.Facts.

    Attributes:
        server: what it keeps.
    """

    travels = True

    def __init__(self, clock: SimulatedClock) -> None:
        self.server = RedisServer(lambda: clock.now_us() // 1_000)

    def reach(self, world: World) -> tuple[Coordinator, FarWay, Callable[[], None]]:
        """See Facts.reach."""
        way = FarWay(world)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "_open", lambda address: RedisClient(self, way))
            coordinator = RedisCoordinator(RedisConnection("redis://one"))

        def die() -> None:
            way.end_watches(silently=False)

        return coordinator, way, die

    def find(self, prefix: str) -> list[Fact]:
        """See Facts.find."""
        kept = self.server
        return [
            Fact(key, value, kept.revisions[key])
            for key, value in sorted(kept.values.items())
            if key.startswith(prefix)
        ]

    def copy(self) -> RedisServer:
        """See Facts.copy."""
        return self.server.copy()

    def restore(self, copy: RedisServer) -> None:
        """See Facts.restore. Connections break as the server starts again."""
        readers, self.server = self.server.readers, copy.copy()
        for read in readers:
            read(b"")


class RedisClient:
    """In place of the library's: a broker's connections to the one primary."""

    def __init__(self, facts: RedisFacts, way: FarWay) -> None:
        self.facts, self.way = facts, way

    def info(self) -> dict[str, Any]:
        """See Redis.info."""
        self.ask(lambda server: None, changes=False)
        return {"redis_version": "7.2.0", "role": "master"}

    def config_get(self, name: str) -> dict[str, str]:
        """See Redis.config_get."""
        self.ask(lambda server: None, changes=False)
        return {name: WANTED[name][0]}

    def register_script(self, text: str) -> Callable[..., Any]:
        """See Redis.register_script."""
        script = text.removeprefix(scripts._BEGIN)
        changes = script in (scripts._PUT, scripts._RENEW, scripts._DELETE)

        def run(keys: Sequence[str], args: Sequence[Any]) -> Any:
            assert len(keys) == 6
            return self.ask(lambda server: server.run(script, args[1:]), changes=changes)

        return run

    def ask(self, call: Callable[[RedisServer], Any], *, changes: bool) -> Any:
        """Have the server do something. Raises as the library does."""
        try:
            return self.way.ask(lambda: call(self.facts.server), changes=changes)
        except Lost:
            wrong = self.way.world.random.choice(
                [redis.exceptions.ConnectionError, redis.exceptions.TimeoutError]
            )
            raise wrong("no answer") from None

    def pubsub(self, *, ignore_subscribe_messages: bool) -> RedisReader:
        """See Redis.pubsub."""
        assert ignore_subscribe_messages
        return RedisReader(self)

    def close(self) -> None:
        """See Redis.close."""


class RedisReader:
    """In place of the library's PubSub: a connection to which changes are pushed."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._told: FiberQueue[bytes] = FiberQueue()
        self._is_silent = False
        self._arrives_us = 0
        """When the last message does: none overtakes another."""

    def subscribe(self, name: str) -> None:
        """See PubSub.subscribe."""
        assert name
        self._client.ask(lambda server: server.readers.append(self._read), changes=False)
        self._client.way.on_end.append(self._end)

    def _read(self, message: bytes) -> None:
        way = self._client.way
        if way.is_cut or self._is_silent:
            return  # what comes while the way is cut is lost with its connection
        now_us = way.world.now_us
        travel_us = way.travel_us() if way.late_us_max else 0
        self._arrives_us = max(self._arrives_us + 1, now_us + travel_us)
        way.world.after(self._arrives_us - now_us, lambda: self._told.put(message))

    def _end(self, silently: bool) -> None:
        self._is_silent = True
        if not silently:
            self._told.put(b"")

    def get_message(self, timeout: float) -> dict[str, Any] | None:
        """See PubSub.get_message."""
        if self._client.way.is_cut:
            raise redis.exceptions.ConnectionError("the connection is gone")
        try:
            data = self._told.get(timeout=timeout)
        except queue.Empty:
            return None
        if not data:
            raise redis.exceptions.ConnectionError("the connection is closed")
        return {"type": "message", "data": data}

    def close(self) -> None:
        """See PubSub.close."""
        way, server = self._client.way, self._client.facts.server
        if self._read in server.readers:
            server.readers.remove(self._read)
        if self._end in way.on_end:
            way.on_end.remove(self._end)
