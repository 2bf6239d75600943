"""beanstalkd by greenstalk: put, reserve, delete.

Room: bench. Its delays are whole seconds: they are rounded up, as a message must not come early.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import greenstalk

from bench.peers.peer import Consumer, Peer, Queue, Sender

LEASE_SECONDS = 120


def make_peer(url: str, _variant: str) -> Peer:
    """By `beanstalk://host:port`."""
    return Beanstalkd(url)


class Beanstalkd(Peer):
    """A server with a tube for each queue."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._address = (place.hostname or "", place.port or 0)

    def make(self, queue: Queue) -> None:
        """See Peer: a tube is there once it is used."""

    def sender(self, queue: Queue) -> Sender:
        """See Peer."""
        return _Sender(greenstalk.Client(self._address, encoding=None, use=queue.name))

    def consumer(self, queue: Queue) -> Consumer:
        """See Peer."""
        return _Consumer(greenstalk.Client(self._address, encoding=None, watch=queue.name))


class _Sender(Sender):
    def __init__(self, client: Any) -> None:
        self._client = client

    def send(self, payload: bytes) -> None:
        self._client.put(payload, ttr=LEASE_SECONDS)

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        self._client.put(payload, delay=-(-delay_ms // 1_000), ttr=LEASE_SECONDS)

    def close(self) -> None:
        self._client.close()


class _Consumer(Consumer):
    def __init__(self, client: Any) -> None:
        self._client = client
        self._last: Any = None

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        while True:
            try:
                self._last = self._client.reserve(timeout=int(idle_seconds) + 1)
            except greenstalk.TimedOutError:
                return
            yield self._last.body

    def ack(self) -> None:
        self._client.delete(self._last)

    def close(self) -> None:
        self._client.close()
