"""The faces of consumers, over a transport moved by hand; real time, no sleeps."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from dejaqueue.client import AsyncClient, Client
from dejaqueue.client._aio.consumer import check_consumer
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest
from dejaqueue.wire.frames import SettleOp
from tests.answers import is_ok, listed
from tests.patience import until
from tests.unit.client.fake_transport import FakeConsume, FakeTransport, ok


def shared() -> FakeTransport:
    return FakeTransport(ok, shares_clock=True)


def deliver(channel: FakeConsume, *in_ms: int, **values: Any) -> None:
    now_us = SystemClock().now_us()
    channel.deliver([now_us // 1000 + ms for ms in in_ms], broker_us=now_us, **values)


def test_messages_one_at_a_time_each_at_its_time() -> None:
    async def main() -> None:
        transport = shared()
        async with (
            AsyncClient(transport=transport) as client,
            client.consume("t", max_messages=3) as consumer,
        ):
            deliver(transport.consumes[0], -1, 20, 40)
            clock, got = SystemClock(), []
            async for message in consumer:
                assert clock.now_us() >= message.due_ms * 1000
                got.append(message.id)
                assert is_ok(await message.ack(wait=True))
            assert got == [0, 1, 2]
            assert consumer.lateness().count == 3

    asyncio.run(main())


def test_batches_hold_only_what_is_due() -> None:
    transport = shared()
    with Client(transport=transport) as client:
        consumer = client.consume_batches("t", batch_rows=10)
        consumer.open()
        deliver(transport.consumes[0], -5, -5, 400, 400, 800)
        sizes = []
        for batch in consumer:
            now_us = SystemClock().now_us()
            assert (batch.dues_ms * 1000 <= now_us).all()
            assert batch.lateness_us.min() >= 0
            sizes.append(len(batch))
            batch.ack(wait=False)
            if sum(sizes) == 5:
                break
        assert sizes in ([2, 2, 1], [2, 3])  # late on a machine that stood still meanwhile
        assert transport.consumes[0].stream.batch_rows_max == 10


def test_waking_up_takes_no_polling() -> None:
    transport = shared()
    with Client(transport=transport) as client:
        consumer = client.consume("t", max_messages=1)
        consumer.open()
        timer = threading.Timer(0.05, deliver, args=(transport.consumes[0], 0))
        timer.start()
        assert next(consumer).id == 0
        timer.join()
        with pytest.raises(StopIteration):
            next(consumer)


@pytest.mark.parametrize("idle_ms", [0, 20])
def test_nothing_for_a_while_ends_it(idle_ms: int) -> None:
    async def main(transport: FakeTransport) -> list[Any]:
        async with AsyncClient(transport=transport) as client:
            return [m async for m in client.consume("t", idle_ms=idle_ms)]

    transport = shared()
    assert asyncio.run(main(transport)) == []
    with Client(transport=transport) as client:
        assert list(client.consume_batches("t", idle_ms=idle_ms)) == []
    assert all(channel.is_closed for channel in transport.consumes)


def test_parts_of_a_batch() -> None:
    transport = shared()
    with Client(transport=transport) as client:
        consumer = client.consume_batches("t", max_messages=4)
        consumer.open()
        deliver(transport.consumes[0], -1, -1, -1, -1, lease_id=9)
        batch = next(consumer)
        first, *_, last = batch.messages()
        assert (first.payload, last.payload) == (b"payload-0", b"payload-3")
        part = batch.take([1, 3])
        assert part.batch.column("payload").to_pylist() == [b"payload-1", b"payload-3"]
        assert is_ok(part.nack(delay=0.5))
        assert is_ok(first.extend(60))
        assert is_ok(batch.take([0, 2]).ack())
        ops = [(s.op, listed(s.ids), s.argument_ms) for s in transport.consumes[0].settles]
    assert ops == [
        (SettleOp.NACK, [1, 3], 500),
        (SettleOp.EXTEND, [0], 60_000),
        (SettleOp.ACK, [0, 2], 0),
    ]


def test_a_lease_that_ended_meanwhile_ends_the_slice() -> None:
    transport = shared()
    with Client(transport=transport) as client:
        consumer = client.consume("t", auto_extend=False, idle_ms=0)
        consumer.open()
        deliver(transport.consumes[0], -1, -1, lease_ms=30)
        first = next(consumer)
        clock = SystemClock()
        until_us = clock.now_us() + 31_000
        while clock.now_us() < until_us:
            threading.Event().wait(0.005)
        assert first.attempt == 1
        assert list(consumer) == []


@pytest.mark.parametrize("taken", [1, 2])  # in the middle of a slice, and at its end
def test_a_consumer_nobody_holds_is_closed__and_no_collection_is_waited_for(taken: int) -> None:
    transport = shared()
    with Client(transport=transport) as client:
        consumer = client.consume("t")
        consumer.open()
        deliver(transport.consumes[0], -1, -1)
        gc.disable()
        try:
            for _ in range(taken):
                message = next(consumer)
            del consumer
            assert not transport.consumes[0].is_closed  # the message keeps it
            del message
            until(lambda: transport.consumes[0].is_closed)
        finally:
            gc.enable()
        given_back = [s for s in transport.consumes[0].settles if s.op is SettleOp.NACK]
        assert given_back == []  # the broker does that when a stream is closed


def test_two_coroutines_take_turns() -> None:
    async def main() -> None:
        transport = shared()
        async with (
            AsyncClient(transport=transport) as client,
            client.consume("t", max_messages=2) as consumer,
        ):
            takers = [asyncio.create_task(anext(consumer)) for _ in range(2)]
            await asyncio.sleep(0)
            deliver(transport.consumes[0], 0, 10)
            got = await asyncio.gather(*takers)
            assert sorted(message.id for message in got) == [0, 1]

    asyncio.run(main())


def test_a_cancelled_wait_leaves_the_consumer_usable() -> None:
    async def main() -> None:
        transport = shared()
        async with (
            AsyncClient(transport=transport) as client,
            client.consume("t") as consumer,
        ):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.02)
            deliver(transport.consumes[0], 0)
            assert (await anext(consumer)).id == 0

    asyncio.run(main())


def test_bad_values_for_settles() -> None:
    transport = shared()
    with Client(transport=transport) as client:
        consumer = client.consume("t")
        consumer.open()
        deliver(transport.consumes[0], -1)
        message = next(consumer)
        with pytest.raises(BadRequest):
            message.extend(0)
        with pytest.raises(BadRequest):
            message.nack(delay=-1)
        consumer.close()


def test_bounds() -> None:
    check_consumer(1, 1, None, None)
    with pytest.raises(BadRequest, match="batch_rows"):
        check_consumer(1, 8_193, None, None)
