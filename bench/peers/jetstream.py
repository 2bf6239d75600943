"""NATS JetStream by nats-py: a stream as a work queue, a consumer that messages are pushed to.

Room: bench.
Holds: a publish returns when the server has acknowledged it. Acks are sent and not answered, but
for the last one.

A delayed message is a schedule (nats-server 2.12): published to a subject of its own, as a subject
has one schedule, with the instant and the subject that it is to be published to then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from bench.peers.peer import PREFETCH, AsyncConsumer, AsyncPeer, AsyncSender, Queue

ANSWER_SECONDS = 30


def make_peer(url: str, _variant: str) -> AsyncPeer:
    """By its URL."""
    return JetStream(url)


class JetStream(AsyncPeer):
    """A server with JetStream."""

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0]

    async def make(self, queue: Queue) -> None:
        """See AsyncPeer."""
        client = await nats.connect(self._url)
        await client.jetstream(timeout=ANSWER_SECONDS).add_stream(
            StreamConfig(
                queue.name,
                subjects=[_now(queue), f"{queue.name}.later.*"],
                retention=RetentionPolicy.WORK_QUEUE,
                storage=StorageType.FILE,
                allow_msg_schedules=bool(queue.delays_ms) or None,
            )
        )
        await client.close()

    async def sender(self, queue: Queue) -> AsyncSender:
        """See AsyncPeer."""
        return _Sender(await nats.connect(self._url), queue)

    async def consumer(self, queue: Queue) -> AsyncConsumer:
        """See AsyncPeer."""
        client = await nats.connect(self._url)
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=PREFETCH)
        subscription = await client.jetstream(timeout=ANSWER_SECONDS).subscribe(
            _now(queue), stream=queue.name, manual_ack=True, config=config
        )
        return _Consumer(client, subscription)


def _now(queue: Queue) -> str:
    return f"{queue.name}.now"


class _Sender(AsyncSender):
    def __init__(self, client: Any, queue: Queue) -> None:
        self._client, self._queue = client, queue
        self._stream = client.jetstream(timeout=ANSWER_SECONDS)
        self._number = 0

    async def send(self, payload: bytes) -> None:
        await self._stream.publish(_now(self._queue), payload)

    async def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        self._number += 1
        due = datetime.fromtimestamp(due_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        headers = {
            "Nats-Schedule": f"@at {due.removesuffix('+00:00')}Z",
            "Nats-Schedule-Target": _now(self._queue),
        }
        subject = f"{self._queue.name}.later.{self._number}"
        await self._stream.publish(subject, payload, headers=headers)

    async def close(self) -> None:
        await self._client.close()


class _Consumer(AsyncConsumer):
    def __init__(self, client: Any, subscription: Any) -> None:
        self._client, self._subscription = client, subscription
        self._last: Any = None

    async def messages(self) -> AsyncIterator[bytes]:
        async for message in self._subscription.messages:
            self._last = message
            yield message.data

    async def ack(self) -> None:
        await self._last.ack()

    async def finish(self) -> None:
        # A round trip on the same connection: the acks before it have arrived.
        await self._client.flush(timeout=ANSWER_SECONDS)

    async def close(self) -> None:
        await self._client.close()
