"""A Redis sorted set by due time, by redis-py and scripts; a consumer sleeps until it is woken.

Room: bench. What is due moves by script into a second set under the end of its lease, a hundred at
a time, and is acked one by one (bench/systems/redis.py has the same in batches).
Holds: nothing polls. Whoever sends what is due before all else publishes that, in the same script;
a consumer that finds nothing waits for that word, or until the next due time by its own timer: a
command that blocks in the server would be woken by its timer of 100 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import redis

from bench.peers.peer import PREFETCH, Consumer, Peer, Queue, Sender
from bench.systems.redis import ACK_SCRIPT, LEASE_MS, LEASE_SCRIPT
from dejaqueue.clock import SystemClock

SEND_SCRIPT = """
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[1] then redis.call('PUBLISH', KEYS[1], '') end
"""
"""KEYS due, payloads; ARGV id, due, payload."""


def make_peer(url: str, _variant: str) -> Peer:
    """By its URL."""
    return RedisSortedSet(url)


class RedisSortedSet(Peer):
    """A server with a few keys for each queue."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, queue: Queue) -> None:
        """See Peer: there is nothing to make."""

    def sender(self, queue: Queue) -> Sender:
        """See Peer."""
        return _Sender(redis.Redis.from_url(self._url), queue.name)

    def consumer(self, queue: Queue) -> Consumer:
        """See Peer."""
        return _Consumer(redis.Redis.from_url(self._url), queue.name)


class _Sender(Sender):
    def __init__(self, client: Any, name: str) -> None:
        self._client, self._clock = client, SystemClock()
        self._send = client.register_script(SEND_SCRIPT)
        self._keys = [name, f"{name}_payloads"]
        self._prefix, self._number = os.urandom(6).hex(), 0

    def send(self, payload: bytes) -> None:
        self.send_later(payload, self._clock.now_ms(), 0)

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        self._number += 1
        self._send(self._keys, [f"{self._prefix}{self._number}", due_ms, payload])

    def close(self) -> None:
        self._client.close()


class _Consumer(Consumer):
    def __init__(self, client: Any, name: str) -> None:
        self._client, self._clock, self._name = client, SystemClock(), name
        self._lease = client.register_script(LEASE_SCRIPT)
        self._ack = client.register_script(ACK_SCRIPT)
        self._leased, self._payloads = f"{name}_leased", f"{name}_payloads"
        self._last = b""
        self._bell = client.pubsub(ignore_subscribe_messages=True)
        self._bell.subscribe(name)
        self._bell.get_message(timeout=1.0)

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        keys = [self._name, self._leased, self._payloads]
        last = time.perf_counter()
        while True:
            now_ms = self._clock.now_ms()
            ids, payloads = self._lease(keys, [now_ms, PREFETCH, now_ms + LEASE_MS])
            for self._last, payload in zip(ids, payloads, strict=True):
                yield payload
                last = time.perf_counter()
            if ids:
                continue
            first = self._client.zrange(self._name, 0, 0, withscores=True)
            left = last + idle_seconds - time.perf_counter()
            if left <= 0:
                return
            if first:
                left = min(left, max(0.0, first[0][1] - self._clock.now_ms()) / 1_000)
            self._bell.get_message(timeout=left)

    def ack(self) -> None:
        self._ack([self._leased, self._payloads], [self._last])

    def close(self) -> None:
        self._bell.close()
        self._client.close()
