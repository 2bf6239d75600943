"""DOQ's gRPC API, by the streams of grpcio: EnqueueStream, DequeueStream, Ack.

Room: bench. A channel of its own for each connection; a stream says its next request when it has
the answer to the last one. Any server of that API: DejaQ's door, or a DOQ.
Holds: an ack is a call of its own, and is answered. Delays are whole seconds in that API: due times
are rounded up, as a message must not come early.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from bench.peers.peer import AsyncConsumer, AsyncPeer, AsyncSender, Queue
from dejaqueue.http.doq.door.protocol import SERVICE, load_calls

CALLS = load_calls()
AT_ONCE = 1
"""The priority of a delayed queue is a due time: this one lies in 1970."""
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
"""Else channels to one address would share a connection."""


def make_peer(url: str, _variant: str) -> AsyncPeer:
    """By host and port."""
    return Doq(url)


class Doq(AsyncPeer):
    """A server with a delayed queue for each queue."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def make(self, queue: Queue) -> None:
        """See AsyncPeer."""
        async with self._connect() as channel:
            asked = CALLS["CreateQueue"].request(name=queue.name, type="delayed")
            await _unary(channel, "CreateQueue")(asked)

    async def sender(self, queue: Queue) -> AsyncSender:
        """See AsyncPeer."""
        return _Sender(self._connect(), queue.name)

    async def consumer(self, queue: Queue) -> AsyncConsumer:
        """See AsyncPeer."""
        return _Consumer(self._connect(), queue.name)

    def _connect(self) -> Any:
        return aio.insecure_channel(self._address, options=OPTIONS)


def _unary(channel: Any, name: str) -> Any:
    request, response = CALLS[name].request, CALLS[name].response
    return channel.unary_unary(
        f"/{SERVICE}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )


def _stream(channel: Any, name: str) -> Any:
    request, response = CALLS[name].request, CALLS[name].response
    return channel.stream_stream(
        f"/{SERVICE}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )()


class _Sender(AsyncSender):
    def __init__(self, channel: Any, name: str) -> None:
        self._channel, self._name = channel, name
        self._stream = _stream(channel, "EnqueueStream")
        self._request = CALLS["EnqueueStream"].request

    async def send(self, payload: bytes) -> None:
        await self._send(payload, AT_ONCE)

    async def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        await self._send(payload, -(-due_ms // 1_000))

    async def _send(self, payload: bytes, priority: int) -> None:
        content = b64encode(payload).decode()
        asked = self._request(queueName=self._name, priority=priority, content=content)
        await self._stream.write(asked)
        answer = await self._stream.read()
        if not answer.success:
            raise RuntimeError(f"not enqueued: {answer}")

    async def close(self) -> None:
        self._stream.cancel()
        await self._channel.close()


class _Consumer(AsyncConsumer):
    def __init__(self, channel: Any, name: str) -> None:
        self._channel, self._name = channel, name
        self._ack = _unary(channel, "Ack")
        self._last = 0

    async def messages(self) -> AsyncIterator[bytes]:
        self._stream = _stream(self._channel, "DequeueStream")
        asked = CALLS["DequeueStream"].request(queueName=self._name, ack=False)
        while True:
            await self._stream.write(asked)
            answer = await self._stream.read()
            if not answer.success:
                raise RuntimeError(f"not dequeued: {answer}")
            self._last = answer.id
            yield b64decode(answer.content)

    async def ack(self) -> None:
        answer = await self._ack(CALLS["Ack"].request(queueName=self._name, id=self._last))
        if not answer.success:
            raise RuntimeError(f"not acked: {answer}")

    async def close(self) -> None:
        self._stream.cancel()
        await self._channel.close()
