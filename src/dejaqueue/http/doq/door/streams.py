"""DOQ's two calls with many requests and many answers: the enqueue and the dequeue stream.

Room: http. On the event loop: a stream that waits holds no thread.
Holds: answers come in the order of their requests; the first request that is refused ends its
stream; a dequeue stream takes a message only when its client asked for one.
See: calls.py; http/leasing for how messages are waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from dejaqueue.access.routes import ROUTES
from dejaqueue.http.doq import rows
from dejaqueue.http.doq.door import calls
from dejaqueue.http.doq.door.calls import Caller, DoorState, Fields
from dejaqueue.http.doq.messages import Missing
from dejaqueue.http.doq.rows import Row
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream

AHEAD_MAX = 64
"""Messages of one enqueue stream that are being made durable: more wait in gRPC's window."""
WAIT_MS = 30_000
"""How long a dequeue stream waits before it looks itself again."""


async def enqueue_stream(
    shared: DoorState, caller: Caller, asked: AsyncIterator[Any]
) -> AsyncIterator[Fields]:
    """Put messages into queues; each is answered when it is durable."""
    rule = ROUTES["doq_enqueue"].rule
    room = asyncio.Semaphore(AHEAD_MAX)
    begun: asyncio.Queue[asyncio.Task[Fields] | None] = asyncio.Queue()

    async def one(request: Any) -> Fields:
        calls.require(rule, caller.principal, request.queueName)
        return await calls.enqueue(shared, caller, request)

    async def read() -> None:
        try:
            async for request in asked:
                await room.acquire()
                begun.put_nowait(asyncio.create_task(one(request)))
        finally:
            begun.put_nowait(None)

    reader = asyncio.create_task(read())
    try:
        while (task := await begun.get()) is not None:
            fields = await task
            room.release()
            yield fields
        await reader  # what was wrong with the last one
    finally:
        await _cancel(reader, begun)


async def _cancel(
    reader: asyncio.Task[None], begun: asyncio.Queue[asyncio.Task[Fields] | None]
) -> None:
    """End what a stream has begun, and look at how it ended: nobody else does."""
    reader.cancel()
    left: deque[asyncio.Task[Any]] = deque([reader])
    while not begun.empty():
        task = begun.get_nowait()
        if task is not None:
            task.cancel()
            left.append(task)
    await asyncio.gather(*left, return_exceptions=True)


async def dequeue_stream(
    shared: DoorState, caller: Caller, asked: AsyncIterator[Any]
) -> AsyncIterator[Fields]:
    """Messages of the queue that the first request names, one for each request, as they are due."""
    queue_name: str | None = None
    ack = False
    async for request in asked:
        if queue_name is None:
            queue_name, ack = request.queueName, request.ack
            calls.require(ROUTES["doq_dequeue"].rule, caller.principal, queue_name)
            shared.doq.messages.topic(queue_name)
        row = await _next(shared, caller, queue_name, ack=ack)
        calls.note_taken(shared, queue_name, ack=ack)
        yield calls.shown(queue_name, row)


async def _next(shared: DoorState, caller: Caller, queue_name: str, *, ack: bool) -> Row:
    """The first message that is due, when there is one."""
    messages, flow = shared.doq.messages, shared.flow()
    options = ConsumeStream(queue_name, holds=False)
    while True:
        with suppress(Missing):
            return await messages.dequeue(queue_name, ack=ack)
        taken = await flow.leases.lease(options, 1, WAIT_MS)
        if not taken:
            continue
        [values] = taken[0].batch.to_pylist()
        row = rows.row_of(messages.topic(queue_name).topic, values)
        if not ack:
            messages.note_taken(queue_name, row, taken[0].lease_end_ms, values["due"])
            return row
        settling = flow.gather(WriteStream(queue_name, "ack"), caller.principal.sender)
        answered = await settling.put([(row.message_id, row.attempts)])
        if not answered.statuses[0]:
            return row
