"""The Redis of the simulated cluster answers as a real one does.

Covered: every script of the coordinator, in 300 drawn orders, what its channel tells, and what is
told of facts that vanish. Not covered: when exactly they do, which is the clock's.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.connections.redis import RedisConnection
from dejaqueue.coordinator import redis as scripts
from dejaqueue.coordinator.redis import RedisCoordinator
from dev.services import Service, missing, start
from tests.patience import until
from tests.simulation.cluster.redis_facts import RedisServer

KEYS = ("a", "a/b", "a/c", "b")
CALLS = 300


@pytest.fixture(scope="module")
def redis() -> Iterator[Service]:
    if lacking := missing("redis"):
        pytest.skip(lacking)
    with start("redis") as service:
        yield service


class _Both:
    """A real Redis and a simulated one, asked the same."""

    def __init__(self, service: Service) -> None:
        url = f"redis://127.0.0.1:{service.port}?prefix={uuid.uuid4().hex}"
        self.real = RedisCoordinator(RedisConnection(url))
        self.now_ms = 0
        self.server = RedisServer(lambda: self.now_ms)
        self.told: list[bytes] = []
        self.server.readers.append(self.told.append)
        self.channel: Any = self.real.listen()

    def ask(self, script: str, *arguments: Any) -> Any:
        """The simulated answer, which is the real one."""
        told = self.server.run(script, arguments)
        assert self.real._run(script, *arguments) == told, (script, arguments)
        return told

    def check_told(self) -> None:
        """Both have told the same."""
        for message in self.told:
            until(lambda: (heard := self.channel.hear(0.1)) and self._take(heard))
            assert f"{self.heard.number} {self.heard.key}".encode() == message
        assert self.told

    def _take(self, heard: Any) -> bool:
        self.heard = heard
        return True

    def close(self) -> None:
        self.channel.close()
        self.real.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_calls_have_the_same_answers(redis: Service, seed: int) -> None:
    dice = random.Random(seed)
    both = _Both(redis)
    revisions = ["", "", "0", "1"]
    try:
        for number in range(CALLS):
            key, revision, what = dice.choice(KEYS), dice.choice(revisions[-8:]), dice.random()
            if what < 0.4:
                ttl_ms = dice.choice(["", "", "60000"])
                made = both.ask(scripts._PUT, key, revision, b"v%d" % number, ttl_ms)
                revisions += ["", str(made)] if made > 0 else []
            elif what < 0.55:
                both.ask(scripts._DELETE, key, revision)
            elif what < 0.7:
                both.ask(scripts._RENEW, key, revision or "1")
            elif what < 0.8:
                both.ask(scripts._LIST, dice.choice(["", "a", "a/", "c"]))
            else:
                both.ask(scripts._GET, key)
        assert both.ask(scripts._COUNT) > 50
        both.check_told()
    finally:
        both.close()


def test_what_vanishes_is_counted_and_told(redis: Service) -> None:
    both = _Both(redis)
    try:
        for key, ttl_ms in (("late", "800"), ("soon", "500"), ("stays", "")):
            both.ask(scripts._PUT, key, "", b"", ttl_ms)
        until(lambda: int(both.real._run(scripts._COUNT)) == 5)
        both.now_ms = 10_000
        both.ask(scripts._COUNT)
        assert both.ask(scripts._LIST, "") == [b"stays", b"", b"3"]
        assert both.ask(scripts._RENEW, "soon", "2") == 0
        both.check_told()
    finally:
        both.close()
