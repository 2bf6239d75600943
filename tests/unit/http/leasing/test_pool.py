"""Requests share a consumer: who waits gets messages, who does not wait gets none."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.consumers import gathering
from dejaqueue.broker.streams import Push, stored_batches
from dejaqueue.errors import InternalError, JournalDamaged, TopicUnknown, Unavailable
from dejaqueue.http.columns import send_batch
from dejaqueue.http.gather import write
from dejaqueue.http.leasing.pool import LeasePool
from dejaqueue.model import Topic, TopicKind
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.leasing.leases import LONG_MS, OPTIONS, credit, payloads, run, send, settled


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


def test_what_came_for_a_client_that_has_gone_goes_back_at_once(broker: Broker) -> None:
    """Also of a request too short to be watched; whoever waits gets it."""

    async def story(pool: LeasePool) -> None:
        await send(broker, "a", "b")
        assert await pool.lease(OPTIONS, 2, 0, has_gone=lambda: True) == []
        taken = await pool.lease(OPTIONS, 2, LONG_MS, has_gone=lambda: False)
        assert sorted(payloads(taken)) == ["a", "b"]

    run(broker, story)


def test_what_cannot_be_read_is_told__and_the_next_request_is_served(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError("the disk fails")]

    def read(pushes: list[Push]) -> list[pa.RecordBatch]:
        if failures:
            raise failures.pop()
        return stored_batches(pushes)

    monkeypatch.setattr("dejaqueue.http.leasing.pool.stored_batches", read)

    async def story(pool: LeasePool) -> None:
        await send(broker, "a")
        with pytest.raises(InternalError):
            await pool.lease(OPTIONS, 1, LONG_MS)
        await send(broker, "b")
        assert payloads(await pool.lease(OPTIONS, 1, LONG_MS)) == ["b"]
        await settled(broker)
        assert credit(broker) == [0]

    run(broker, story)


def test_damaged_rows_go_back__and_the_others_are_handed_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: list[int] = []
    inner = gathering._read_batches

    def read(pushes: list[Push]) -> list[pa.RecordBatch]:
        for push in pushes:
            if set(bad) & set(push.leased.sequences.tolist()):
                raise JournalDamaged("a row")
        return inner(pushes)

    monkeypatch.setattr(gathering, "_read_batches", read)

    async def story(pool: LeasePool) -> None:
        for payload in "abcd":  # an entry each: what is damaged is one as a whole
            await send(broker, payload)
        bad.append(2)
        assert payloads(await pool.lease(OPTIONS, 4, LONG_MS)) == ["a", "b", "d"]
        await settled(broker)
        assert broker.call("stats", {"topic": "t"})["leased"] == 3
        assert credit(broker) == [0]

    run(broker, story)


def test_a_damaged_row_that_comes_alone_goes_back__and_the_request_waits_for_the_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, tried = gathering._read_batches, threading.Event()

    def read(pushes: list[Push]) -> list[pa.RecordBatch]:
        if any(0 in push.leased.sequences.tolist() for push in pushes):
            tried.set()
            raise JournalDamaged("a row")
        return inner(pushes)

    monkeypatch.setattr(gathering, "_read_batches", read)

    async def story(pool: LeasePool) -> None:
        await send(broker, "a")
        waiting = asyncio.create_task(pool.lease(OPTIONS, 1, LONG_MS))
        assert await asyncio.to_thread(tried.wait, PATIENCE_SECONDS)
        assert not waiting.done()
        await send(broker, "b")
        assert payloads(await waiting) == ["b"]
        assert await pool.lease(OPTIONS, 1, 0) == []
        await settled(broker)
        assert broker.call("stats", {"topic": "t"})["leased"] == 1
        assert credit(broker) == [0]

    run(broker, story)


def test_who_waits_behind_a_failure_gets_what_comes_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError("the disk fails")]

    def read(pushes: list[Push]) -> list[pa.RecordBatch]:
        if failures:
            raise failures.pop()
        return stored_batches(pushes)

    monkeypatch.setattr("dejaqueue.http.leasing.pool.stored_batches", read)

    async def story(pool: LeasePool) -> None:
        first = asyncio.create_task(pool.lease(OPTIONS, 1, LONG_MS))
        second = asyncio.create_task(pool.lease(OPTIONS, 2, LONG_MS))
        await asyncio.sleep(0)
        await send(broker, "a", "b", "c")  # one push, of which nothing can be read
        with pytest.raises(InternalError, match="the disk fails"):
            await first
        await send(broker, "d", "e")
        assert payloads(await second) == ["d", "e"]

    run(broker, story)


def test_where_groups_give_runs_each_request_waits_by_itself__and_seats_are_used_again(
    broker: Broker,
) -> None:
    broker.create_topic(Topic("runs", TopicKind.FAIR, group_runs=True))
    options = ConsumeStream("runs", batch_rows_max=1_000, holds=False)

    def consumer_count() -> int:
        return len(broker.call("stats", {"topic": "runs"})["consumers"])

    async def story(pool: LeasePool) -> None:
        for turn in range(2):
            tasks = [asyncio.create_task(pool.lease(options, 2, LONG_MS)) for _ in range(3)]
            await asyncio.sleep(0)
            assert consumer_count() == 3
            rows = [{"payload": str(n), "group": f"{turn} {n // 2}"} for n in range(6)]
            await write(broker, WriteStream("runs"), NOBODY, send_batch(rows, 0))
            found = sorted(["".join(payloads(taken)) for taken in await asyncio.gather(*tasks)])
            assert found == ["01", "23", "45"]
        pool.close()
        assert consumer_count() == 0

    run(broker, story)
