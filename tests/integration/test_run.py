"""Working on messages by a function: what is acked, what is nacked, how many at a time, the end.

With the client over the wire and in one process, and the asynchronous one over the wire.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from dejaqueue.client import AsyncClient, AsyncMessage, Client, Message
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.flight.server import FlightServer
from tests.answers import is_ok
from tests.integration.test_comfort import IDLE_MS, broker, client, server, topic
from tests.patience import PATIENCE_SECONDS

__all__ = ["broker", "client", "server", "topic"]


class Gauge:
    """How many handlers are at work, and were at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.ended = 0

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self.now -= 1
            self.ended += 1


def test_what_returns_is_acked(client: Client, topic: str) -> None:
    client.send_batch(topic, [{"json": n} for n in range(200)])
    seen: set[int] = set()
    client.run(topic, lambda message: seen.add(message.json()), concurrency=4, max_messages=200)
    assert seen == set(range(200))
    assert client.stats(topic)["acked"] == 200


def test_what_raises_is_nacked__and_its_letter_says_where(client: Client, topic: str) -> None:
    dead = f"{topic}.dead"
    client.create_topic(dead)  # it is made with the first letter, which takes a moment
    client.alter_topic(topic, max_attempts=2)
    client.send(topic, b"x", key="k")
    attempts: list[int] = []

    def fails(message: Message) -> None:
        attempts.append(message.attempt)
        raise ValueError("no address")

    client.run(topic, fails, max_messages=2)
    assert attempts == [1, 2]
    with client.consume(dead, max_messages=1, idle_ms=IDLE_MS) as letters:
        letter = next(letters)
        reason = letter.headers["dejaq-dead-reason"].splitlines()
        letter.ack()
    client.delete_topic(dead)
    assert reason[0] == "ValueError: no address"
    assert reason[1].startswith("  test_run.py:")
    assert reason[1].endswith(" in fails")


def test_never_more_at_a_time_than_was_said__and_as_many(client: Client, topic: str) -> None:
    client.send_batch(topic, [b"x"] * 40)
    gauge, all_at_work = Gauge(), threading.Barrier(5)

    def works(_message: Message) -> None:
        with gauge:
            all_at_work.wait(PATIENCE_SECONDS)

    client.run(topic, works, concurrency=5, max_messages=40)
    assert (gauge.most, gauge.ended) == (5, 40)


def test_a_handler_may_settle_its_message_itself(client: Client, topic: str) -> None:
    client.send_batch(topic, [b"ack", b"nack"])

    def works(message: Message) -> None:
        if message.payload == b"ack":
            message.ack()
        else:
            message.nack(delay=3_600)

    client.run(topic, works, max_messages=2)
    stats = client.stats(topic)
    assert (stats["acked"], stats["scheduled"]) == (1, 1)


@pytest.mark.parametrize("drain", ["consumer", "client"])
def test_drain_finishes_what_is_at_work_and_gives_the_rest_back(
    client: Client, topic: str, drain: str
) -> None:
    client.send_batch(topic, [b"%d" % n for n in range(50)])
    at_work, may_end = threading.Barrier(3), threading.Event()
    done: list[bytes] = []

    def works(message: Message) -> None:
        at_work.wait(PATIENCE_SECONDS)
        assert may_end.wait(PATIENCE_SECONDS)
        done.append(message.payload)

    consumer = client.consume(topic)
    runner = threading.Thread(target=consumer.run, args=(works,), kwargs={"concurrency": 2})
    runner.start()
    at_work.wait(PATIENCE_SECONDS)
    (consumer if drain == "consumer" else client).drain()
    # Others get the rest at once, while the two are still at work, and it is not worn out.
    with client.consume(topic, max_messages=48, idle_ms=IDLE_MS) as others:
        rest = [
            (message.payload, message.attempt)
            for message in others
            if is_ok(message.ack(wait=True))
        ]
    assert {attempt for _, attempt in rest} <= {1, 2}
    may_end.set()
    runner.join(PATIENCE_SECONDS)
    assert not runner.is_alive()
    assert len(done) == 2
    assert sorted(done + [payload for payload, _ in rest]) == sorted(b"%d" % n for n in range(50))
    assert client.stats(topic)["acked"] == 50


def test_drain_ends_an_iteration_that_waits(client: Client, topic: str) -> None:
    consumer = client.consume(topic)
    seen: list[bytes] = []
    loop = threading.Thread(target=lambda: seen.extend(m.payload for m in consumer))
    loop.start()
    consumer.drain()
    loop.join(PATIENCE_SECONDS)
    assert not loop.is_alive()
    assert seen == []
    consumer.drain()


def test_batches_drain_too(client: Client, topic: str) -> None:
    client.send_batch(topic, [b"%d" % n for n in range(50)])
    with client.consume_batches(topic, batch_rows=10) as batches:
        first = next(batches)
        batches.drain()
        assert list(batches) == []
        assert first.ack().ok
    with client.consume_batches(topic, max_messages=40, idle_ms=IDLE_MS) as others:
        assert sum(len(batch) for batch in others if batch.ack().ok) == 40


def test_what_cannot_run_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(BadRequest, match="concurrency"):
        client.run(topic, print, concurrency=0)
    with pytest.raises(TopicUnknown):
        client.run("nowhere", print)


def in_a_loop(main: Callable[[AsyncClient], object], url: str) -> None:
    async def inside() -> None:
        async with AsyncClient(url) as client:
            await client.create_topic("run-async.dead")
            await client.create_topic("run-async", max_attempts=1)
            await main(client)  # type: ignore[misc]
            await client.delete_topic("run-async")
            await client.delete_topic("run-async.dead")

    asyncio.run(asyncio.wait_for(inside(), 4 * PATIENCE_SECONDS))


def test_the_asynchronous_client_works_in_tasks(server: FlightServer) -> None:
    async def main(client: AsyncClient) -> None:
        await client.send_batch("run-async", [b"%d" % n for n in range(60)])
        gauge, loop_thread = Gauge(), threading.get_ident()
        all_at_work = asyncio.Barrier(6)

        async def works(message: AsyncMessage) -> None:
            assert threading.get_ident() == loop_thread
            with gauge:
                await all_at_work.wait()
            if message.payload == b"13":
                raise ValueError("unlucky")

        await client.run("run-async", works, concurrency=6, max_messages=60)
        assert (gauge.most, gauge.ended) == (6, 60)
        assert (await client.stats("run-async"))["acked"] == 59
        async for letter in client.consume("run-async.dead", max_messages=1):
            assert letter.headers["dejaq-dead-reason"].startswith("ValueError: unlucky\n")
            await letter.ack()

    in_a_loop(main, server.url)


def test_the_asynchronous_client_drains(server: FlightServer) -> None:
    async def main(client: AsyncClient) -> None:
        await client.send_batch("run-async", [b"%d" % n for n in range(20)])
        done: list[bytes] = []

        async def works(message: AsyncMessage) -> None:
            client.drain()
            await asyncio.sleep(0)
            done.append(message.payload)

        await client.run("run-async", works, concurrency=2)
        assert 1 <= len(done) <= 2
        stats = await client.stats("run-async")
        assert (stats["acked"], stats["leased"]) == (len(done), 0)

    in_a_loop(main, server.url)


def test_a_run_that_is_cancelled_gives_back_what_was_at_work(server: FlightServer) -> None:
    async def main(client: AsyncClient) -> None:
        await client.send("run-async", b"x")
        at_work = asyncio.Event()

        async def works(_message: AsyncMessage) -> None:
            at_work.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(client.run("run-async", works))
        await at_work.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        stats = await client.stats("run-async")
        assert (stats["acked"], stats["leased"]) == (0, 0)

    in_a_loop(main, server.url)
