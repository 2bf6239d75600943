"""Requests share a consumer: who waits gets messages, who does not wait gets none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.dispatch import Push
from dejaqueue.errors import TopicUnknown, Unavailable
from dejaqueue.http import leasing
from dejaqueue.http.columns import send_batch
from dejaqueue.http.gather import call_soon, write
from dejaqueue.http.leasing import LeasePool, Taken
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


def test_nothing_there_is_answered_at_once(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        assert await pool.lease(OPTIONS, 5, 0) == []
        assert credit(broker) == [0]
        await send(broker, "a", "b", "c")
        assert payloads(await pool.lease(OPTIONS, 2, 0)) == ["a", "b"]
        assert payloads(await pool.lease(OPTIONS, 2, 0)) == ["c"]
        assert await pool.lease(OPTIONS, 2, 0) == []

    run(broker, story)


def test_who_waits_gets_what_comes_in_turn(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        tasks = [asyncio.create_task(pool.lease(OPTIONS, 2, LONG_MS)) for _ in range(3)]
        await asyncio.sleep(0)
        await send(broker, *"abcde")
        assert [payloads(taken) for taken in await asyncio.gather(*tasks)] == [
            ["a", "b"],
            ["c", "d"],
            ["e"],
        ]
        await settled(broker)
        assert credit(broker) == [0]
        assert len(broker.call("stats", {"topic": "t"})["consumers"]) == 1

    run(broker, story)


def test_time_that_is_over_takes_the_credit_back(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        assert await pool.lease(OPTIONS, 7, 20) == []
        await settled(broker)
        assert credit(broker) == [0]
        await send(broker, "a")
        await settled(broker)
        assert broker.call("stats", {"topic": "t"})["ready"] == 1
        [part] = await pool.lease(OPTIONS, 7, 0)
        assert part.batch.column("attempts").to_pylist() == [1]

    run(broker, story)


def test_a_client_that_goes_away_gets_nothing(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        gone = asyncio.Event()

        async def wait_gone() -> None:
            await gone.wait()

        lost = asyncio.create_task(pool.lease(OPTIONS, 1, LONG_MS, wait_gone))
        other = asyncio.create_task(pool.lease(OPTIONS, 1, LONG_MS))
        await asyncio.sleep(0)
        gone.set()
        assert await lost == []
        await send(broker, "a", "b")
        assert payloads(await other) == ["a"]
        await settled(broker)
        assert broker.call("stats", {"topic": "t"})["ready"] == 1

    run(broker, story)


def test_rows_for_nobody_go_back_at_once(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        session = pool.session(OPTIONS)
        session.session.credit(3)  # as if it had been withdrawn too late
        session._given += 3
        await send(broker, "a", "b", "c")
        for _ in range(200):
            if broker.call("stats", {"topic": "t"})["nacked"] >= 3:
                break
            await settled(broker)
        [part] = await pool.lease(OPTIONS, 9, LONG_MS)
        assert sorted(payloads([part])) == ["a", "b", "c"]
        assert broker.call("stats", {"topic": "t"})["dead"] == 0

    run(broker, story)


def test_rows_on_their_way_are_waited_for(broker: Broker) -> None:
    """Somebody's time is over while what was leased for it is still being read."""

    async def story(pool: LeasePool) -> None:
        session = pool.session(OPTIONS)
        pushes: asyncio.Queue[Push] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        session._read = lambda _, push: call_soon(loop, pushes.put_nowait, push)
        tasks = [asyncio.create_task(pool.lease(OPTIONS, 1, 10)) for _ in range(2)]
        await asyncio.sleep(0)
        await send(broker, "a")
        push = await pushes.get()
        while not all(waiter.is_late for waiter in session._waiters):
            await asyncio.sleep(0)
        assert session.is_waited_on
        pool._read(session, push)
        first, second = await asyncio.gather(*tasks)
        assert payloads([*first, *second]) == ["a"]
        assert broker.call("stats", {"topic": "t"})["nacked"] == 0

    run(broker, story)


def test_rows_on_their_way_are_not_waited_for_for_ever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "GRACE_SECONDS", 0.03)

    async def story(pool: LeasePool) -> None:
        pool.session(OPTIONS)._given = 1  # what came back to the broker and was not noticed
        assert await pool.lease(OPTIONS, 1, 10) == []

    run(broker, story)


def test_a_cancelled_request_gives_back(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        task = asyncio.create_task(pool.lease(OPTIONS, 1, LONG_MS))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not pool.session(OPTIONS).is_waited_on
        await send(broker, "a")
        assert payloads(await pool.lease(OPTIONS, 1, LONG_MS)) == ["a"]

    run(broker, story)


def test_a_deleted_topic_ends_the_wait(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        task = asyncio.create_task(pool.lease(OPTIONS, 1, LONG_MS))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, broker.delete_topic, "t")
        with pytest.raises(TopicUnknown):
            await task
        with pytest.raises(TopicUnknown):
            await pool.lease(OPTIONS, 1, 0)

    run(broker, story)


def test_closing_ends_the_wait(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        task = asyncio.create_task(pool.lease(OPTIONS, 1, LONG_MS))
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(Unavailable):
            await task
        with pytest.raises(Unavailable):
            await pool.lease(OPTIONS, 1, 0)

    run(broker, story)


def test_sessions_that_nobody_uses_are_closed(broker: Broker) -> None:
    async def story(pool: LeasePool) -> None:
        assert await pool.lease(OPTIONS, 1, 0) == []
        task = asyncio.create_task(pool.lease(ConsumeStream("t", "b", holds=False), 1, LONG_MS))
        await asyncio.sleep(0)
        for session in pool._sessions.values():
            session.used_us = 0
        pool._make_round()
        assert [
            consumer["consumer"] for consumer in broker.call("stats", {"topic": "t"})["consumers"]
        ] == ["b"]
        task.cancel()

    run(broker, story)
