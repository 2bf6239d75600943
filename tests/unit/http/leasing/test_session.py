"""Covers: rows that come too late, or for nobody, find their way."""

from __future__ import annotations

import asyncio

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.consumers.gathering import delivery_batches
from dejaqueue.broker.streams import Push
from dejaqueue.http.gather import call_soon
from dejaqueue.http.leasing import session as sessions
from dejaqueue.http.leasing.pool import LeasePool
from dejaqueue.http.leasing.session import Arrival
from tests.unit.http.leasing.leases import LONG_MS, OPTIONS, credit, payloads, run, send, settled


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
        tasks = [asyncio.create_task(pool.lease(OPTIONS, 1, 500)) for _ in range(2)]
        await asyncio.sleep(0)
        await send(broker, "a")  # a busy machine takes its time: nobody may be late by then
        push = await pushes.get()
        while not all(waiter.is_late for waiter in session._waiters):
            await asyncio.sleep(0)
        assert session.is_waited_on
        pool._read(session, push)
        first, second = await asyncio.gather(*tasks)
        assert payloads([*first, *second]) == ["a"]
        assert broker.call("stats", {"topic": "t"})["nacked"] == 0

    run(broker, story)


def test_the_credit_of_rows_that_are_missing_is_taken_back_when_nobody_waits(
    broker: Broker,
) -> None:
    """Of two messages one has a payload that cannot be read now: it is not delivered, and the
    broker has the credit for it again. If nobody took that back, the next message would be leased
    for nobody."""

    async def story(pool: LeasePool) -> None:
        session = pool.session(OPTIONS)
        pushes: asyncio.Queue[Push] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        session._read = lambda _, push: call_soon(loop, pushes.put_nowait, push)
        waiting = asyncio.create_task(pool.lease(OPTIONS, 2, LONG_MS))
        await asyncio.sleep(0)
        await send(broker, "a", "b")
        push = await pushes.get()
        assert len(push.leased.sequences) == 2
        [whole] = delivery_batches([push])
        assert push.consumer is not None
        push.consumer.dispatcher.give_back(push.consumer, 1)
        session.arrived([Arrival(push, whole.slice(0, 1))])
        assert payloads(await waiting) == ["a"]
        await settled(broker)
        assert credit(broker) == [0]

    run(broker, story)


def test_rows_on_their_way_are_not_waited_for_for_ever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "GRACE_SECONDS", 0.03)

    async def story(pool: LeasePool) -> None:
        pool.session(OPTIONS)._given = 1  # what came back to the broker and was not noticed
        assert await pool.lease(OPTIONS, 1, 10) == []

    run(broker, story)
