"""DejaQ by its public client: `send`, `consume`, `ack`; with `asyncio`, those of AsyncClient.

Room: bench. A `Client` for each connection.
Holds: acks do not wait for each other; they count when the consumer has been closed without an
error: then they are durable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from bench.peers.peer import (
    PREFETCH,
    AsyncConsumer,
    AsyncPeer,
    AsyncSender,
    Consumer,
    Peer,
    Queue,
    Sender,
)
from dejaqueue import AsyncClient, Client

ASYNCIO = "asyncio"


def make_peer(url: str, variant: str) -> Peer | AsyncPeer:
    """By the client that blocks, or that of asyncio."""
    return AsyncDejaq(url) if variant == ASYNCIO else Dejaq(url)


class Dejaq(Peer):
    """A broker, by clients that block."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, queue: Queue) -> None:
        """See Peer."""
        with Client(self._url) as client:
            client.create_topic(queue.name)

    def sender(self, queue: Queue) -> Sender:
        """See Peer."""
        return _Sender(Client(self._url), queue.name)

    def consumer(self, queue: Queue) -> Consumer:
        """See Peer."""
        return _Consumer(Client(self._url), queue.name)


class _Sender(Sender):
    def __init__(self, client: Client, topic: str) -> None:
        self._client, self._topic = client, topic

    def send(self, payload: bytes) -> None:
        self._client.send(self._topic, payload)

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        self._client.send(self._topic, payload, due=due_ms)

    def close(self) -> None:
        self._client.close()


class _Consumer(Consumer):
    def __init__(self, client: Client, topic: str) -> None:
        self._client, self._topic = client, topic
        self._last: Any = None

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        idle_ms = int(1_000 * idle_seconds)
        self._stream = self._client.consume(self._topic, prefetch=PREFETCH, idle_ms=idle_ms)
        for message in self._stream:
            self._last = message
            yield message.payload

    def ack(self) -> None:
        self._last.ack()

    def finish(self) -> None:
        self._stream.close()

    def close(self) -> None:
        self._client.close()


class AsyncDejaq(AsyncPeer):
    """A broker, by clients of asyncio."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def make(self, queue: Queue) -> None:
        """See AsyncPeer."""
        async with AsyncClient(self._url) as client:
            await client.create_topic(queue.name)

    async def sender(self, queue: Queue) -> AsyncSender:
        """See AsyncPeer."""
        return _AsyncSender(AsyncClient(self._url), queue.name)

    async def consumer(self, queue: Queue) -> AsyncConsumer:
        """See AsyncPeer."""
        return _AsyncConsumer(AsyncClient(self._url), queue.name)


class _AsyncSender(AsyncSender):
    def __init__(self, client: AsyncClient, topic: str) -> None:
        self._client, self._topic = client, topic

    async def send(self, payload: bytes) -> None:
        await self._client.send(self._topic, payload)

    async def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        await self._client.send(self._topic, payload, due=due_ms)

    async def close(self) -> None:
        await self._client.close()


class _AsyncConsumer(AsyncConsumer):
    def __init__(self, client: AsyncClient, topic: str) -> None:
        self._client, self._topic = client, topic
        self._last: Any = None

    async def messages(self) -> AsyncIterator[bytes]:
        self._stream = self._client.consume(self._topic, prefetch=PREFETCH)
        async for message in self._stream:
            self._last = message
            yield message.payload

    async def ack(self) -> None:
        await self._last.ack()

    async def finish(self) -> None:
        await self._stream.close()

    async def close(self) -> None:
        await self._client.close()
