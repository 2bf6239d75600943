"""A Redis stream with a group, by redis-py: XADD, XREADGROUP that blocks, XACK.

Room: bench. It has no delays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis

from bench.peers.peer import PREFETCH, Consumer, Peer, Queue, Sender

GROUP = "group"


def make_peer(url: str, _variant: str) -> Peer:
    """By its URL."""
    return RedisStreams(url)


class RedisStreams(Peer):
    """A server with a stream for each queue."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, queue: Queue) -> None:
        """See Peer."""
        with redis.Redis.from_url(self._url) as client:
            client.xgroup_create(queue.name, GROUP, id="0", mkstream=True)

    def sender(self, queue: Queue) -> Sender:
        """See Peer."""
        return _Sender(redis.Redis.from_url(self._url), queue.name)

    def consumer(self, queue: Queue) -> Consumer:
        """See Peer."""
        return _Consumer(redis.Redis.from_url(self._url), queue.name)


class _Sender(Sender):
    def __init__(self, client: Any, stream: str) -> None:
        self._client, self._stream = client, stream

    def send(self, payload: bytes) -> None:
        self._client.xadd(self._stream, {b"p": payload})

    def close(self) -> None:
        self._client.close()


class _Consumer(Consumer):
    def __init__(self, client: Any, stream: str) -> None:
        self._client, self._stream = client, stream
        self._last = b""

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        block_ms, wanted = int(1_000 * idle_seconds), {self._stream: ">"}
        while found := self._client.xreadgroup(GROUP, "one", wanted, PREFETCH, block_ms):
            # A list of pairs, or in the newer protocol an object of lists.
            ((_, entries),) = found.items() if isinstance(found, dict) else found
            for self._last, fields in entries[0] if isinstance(found, dict) else entries:
                yield fields[b"p"]

    def ack(self) -> None:
        self._client.xack(self._stream, GROUP, self._last)

    def close(self) -> None:
        self._client.close()
