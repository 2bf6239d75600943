"""What tests of leasing over HTTP share: a pool in a loop, and what it handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.http.columns import send_batch
from dejaqueue.http.gather import write
from dejaqueue.http.leasing.pool import LeasePool
from dejaqueue.http.leasing.waiter import Taken
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream

OPTIONS = ConsumeStream("t", batch_rows_max=1_000, holds=False)
LONG_MS = 30_000


async def send(broker: Broker, *payloads: str) -> None:
    await write(broker, WriteStream("t"), NOBODY, send_batch([{"payload": p} for p in payloads], 0))


def payloads(taken: list[Taken]) -> list[str]:
    found: list[str] = []
    for part in taken:
        found += part.batch.column("payload").cast(pa.utf8()).to_pylist()
    return found


async def settled(broker: Broker) -> None:
    """Return when the worker has nothing left to do, and what it did has come to the loop."""
    loop = asyncio.get_running_loop()
    for _ in range(2):
        future = broker.runtime("t").look(0, lambda place: None)
        await loop.run_in_executor(None, future.result, 10)


def run(broker: Broker, story: Callable[[LeasePool], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        pool = LeasePool(broker)
        try:
            return await asyncio.wait_for(story(pool), 60)
        finally:
            pool.close()

    return asyncio.run(whole())


def credit(broker: Broker) -> list[object]:
    return [consumer["credit"] for consumer in broker.call("stats", {"topic": "t"})["consumers"]]
