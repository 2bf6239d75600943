"""The load for a client of asyncio: a task for each connection that sends, on one event loop.

Room: bench. Answers what load.py prints; the same as threads.py otherwise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from bench.peers.message import WARM_US, payload_of, time_of
from bench.peers.peer import AsyncConsumer, AsyncPeer, AsyncSender, Queue
from bench.peers.said import Said, Taken, pauses
from dejaqueue.clock import SystemClock

T = TypeVar("T")


class CoroutineLoad:
    """Senders and a consumer of one queue at a time."""

    def __init__(self, peer: AsyncPeer) -> None:
        self._peer = peer
        self._clock = SystemClock()
        self._runner = asyncio.Runner()
        self._senders: list[AsyncSender] = []
        self._consumer: AsyncConsumer | None = None
        self._messages: AsyncIterator[bytes]
        self._idle_seconds = 0.0

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def make(self, queue: Queue) -> None:
        """See AsyncPeer.make."""
        self._run(self._peer.make(queue))

    def open(self, queue: Queue, connections: int) -> None:
        """Connect so many senders, and send a message by each that counts for nothing."""

        async def run() -> None:
            for _ in range(connections):
                sender = await self._peer.sender(queue)
                self._senders.append(sender)
                await sender.send(payload_of(WARM_US))

        self._run(run())

    def listen(self, queue: Queue, idle_seconds: float) -> None:
        """Connect a consumer, and take a message, which counts for nothing; then it is warm.

        From then on it ends when none has come for so long.
        """

        async def run() -> None:
            self._consumer = await self._peer.consumer(queue)
            self._messages, self._idle_seconds = self._consumer.messages(), idle_seconds
            await anext(self._messages)
            await self._consumer.ack()

        self._run(run())

    def send(self, seconds: float) -> Said:
        """Each sender sends one message after the other for so long."""

        async def run(sender: AsyncSender, end: float) -> int:
            sent = 0
            while time.perf_counter() < end:
                await sender.send(payload_of(1))
                sent += 1
            return sent

        async def all_of_them() -> Said:
            start, processor = time.perf_counter(), time.process_time()
            ones = [run(sender, start + seconds) for sender in self._senders]
            counts = [await ones[0]] if len(ones) == 1 else await asyncio.gather(*ones)
            took, spent = time.perf_counter() - start, time.process_time() - processor
            return Said(sum(counts), took, spent)

        return self._run(all_of_them())

    def pace(self, per_second: int, delays_ms: list[int], rows: int) -> Said:
        """One sender sends so many at an even rate, each with its delay in turn; none = at once."""

        async def run(sender: AsyncSender) -> Said:
            start, processor = time.perf_counter(), time.process_time()
            for number, pause in enumerate(pauses(start, per_second, rows)):
                await asyncio.sleep(max(0.0, pause))
                if delays_ms:
                    delay_ms = delays_ms[number % len(delays_ms)]
                    due_ms = self._clock.now_ms() + delay_ms
                    await sender.send_later(payload_of(1_000 * due_ms), due_ms, delay_ms)
                else:
                    await sender.send(payload_of(self._clock.now_us()))
            return Said(rows, time.perf_counter() - start, time.process_time() - processor)

        (sender,) = self._senders
        return self._run(run(sender))

    def take(self, rows: int, seconds: float) -> Taken:
        """Take and ack so many, one by one, for so long at most, or until none comes any more."""
        consumer, idle_seconds, now_us = self._consumer, self._idle_seconds, self._clock.now_us
        assert consumer is not None
        late_us: list[int] = []
        start = time.perf_counter()
        last = [start]

        async def run() -> None:
            async for payload in self._messages:
                received_us = now_us()
                await consumer.ack()
                last[0] = time.perf_counter()
                at_us = time_of(payload)
                if at_us == WARM_US:
                    continue
                late_us.append(received_us - at_us)
                if len(late_us) == rows or last[0] - start > seconds:
                    await consumer.finish()
                    last[0] = time.perf_counter()
                    return

        async def until_idle() -> None:
            # Looked at now and then: a timer for each message would be part of its price.
            task = asyncio.ensure_future(run())
            while not task.done():
                await asyncio.wait([task], timeout=idle_seconds / 4)
                if time.perf_counter() - last[0] > idle_seconds:
                    task.cancel()
                    break
            await asyncio.gather(task, return_exceptions=True)
            if not task.cancelled():
                task.result()

        processor = time.process_time()
        self._run(until_idle())
        return Taken(len(late_us), last[0] - start, time.process_time() - processor, late_us)

    def close(self) -> None:
        """Disconnect all."""

        async def run() -> None:
            for sender in self._senders:
                await sender.close()
            self._senders = []
            if self._consumer is not None:
                await self._consumer.close()
                self._consumer = None

        self._run(run())

    def end(self) -> None:
        """Close the event loop."""
        self._runner.close()
