"""The asynchronous client has the same names. Three consumers share a topic's messages."""

import asyncio

import dejaqueue

MESSAGES = 300
CONSUMERS = 3


async def consume(queue: dejaqueue.AsyncClient, done: set[int], all_done: asyncio.Event) -> None:
    """Ack messages until all of them are done."""
    async with queue.consume("numbers", prefetch=10) as messages:
        async for message in messages:
            done.add(int(message.payload))
            await message.ack()
            if len(done) == MESSAGES:
                all_done.set()


async def main() -> None:
    """Send three hundred messages, due over a third of a second, and wait until all are acked."""
    done: set[int] = set()
    all_done = asyncio.Event()
    async with dejaqueue.open_async("./example-queue") as queue:
        await queue.create_topic("numbers")
        await queue.send_batch(
            "numbers", [{"payload": str(n), "delay": n / 1_000} for n in range(MESSAGES)]
        )
        consumers = [asyncio.create_task(consume(queue, done, all_done)) for _ in range(CONSUMERS)]
        await all_done.wait()
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
    print(len(done), "messages,", CONSUMERS, "consumers")


asyncio.run(main())
