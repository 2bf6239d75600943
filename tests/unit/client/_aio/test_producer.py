"""The producer: batches by size and by linger, futures, windows."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

from dejaqueue.client import AsyncClient, Client
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import SECONDS_MAX, FakeTransport, ok

BATCH = pa.record_batch({"payload": [b"x", b"y"]})


def test_a_full_batch_goes_out_at_once() -> None:
    transport = FakeTransport(ok)
    with (
        Client(transport=transport) as client,
        client.producer("t", batch_rows=3, linger_ms=60_000) as producer,
    ):
        sent = [producer.send(b"%d" % n) for n in range(7)]
        assert [one.result(SECONDS_MAX) for one in sent[:6]] == [
            1000,
            1001,
            1002,
            2000,
            2001,
            2002,
        ]
        assert not sent[6].done()
        producer.flush()
        assert sent[6].result(0) == 3000
    assert transport.writes[0].is_closed


def test_linger_sends_what_there_is() -> None:
    transport = FakeTransport(ok)
    with Client(transport=transport) as client, client.producer("t", linger_ms=1) as producer:
        assert producer.send(b"x", due=1_800_000_000_000).result(SECONDS_MAX) == 1000


def test_a_batch_of_many_bytes_goes_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for face in ("_sync", "_aio"):
        monkeypatch.setattr(f"dejaqueue.client.{face}.producer.BYTES_MAX", 10)
    transport = FakeTransport(ok)
    with (
        Client(transport=transport) as client,
        client.producer("t", linger_ms=60_000) as producer,
    ):
        for payload in (b"1234", b"5678", b"90", b"next"):
            producer.send(payload)
        transport.wait_writes(1).wait_for(1)
        assert transport.writes[0].sent[0][1].num_rows == 3


def test_no_linger_sends_each_alone() -> None:
    transport = FakeTransport(ok)
    with Client(transport=transport) as client, client.producer("t", linger_ms=0) as producer:
        assert [producer.send(b"x").result(SECONDS_MAX) for _ in range(2)] == [1000, 2000]


def test_batches_are_pipelined_up_to_the_window() -> None:
    transport = FakeTransport()
    with Client(transport=transport) as client:
        producer = client.producer("t", window=2)
        answers = [producer.send_batch(BATCH) for _ in range(2)]
        blocked = threading.Thread(target=producer.send_batch, args=(BATCH,), daemon=True)
        blocked.start()
        write = transport.writes[0]
        assert len(write.sent) == 2
        write.answer(0)
        blocked.join(SECONDS_MAX)
        write.wait_for(3)
        write.answer(1)
        write.answer(2)
        assert [answer.result(SECONDS_MAX).ids.tolist() for answer in answers] == [
            [100, 101],
            [200, 201],
        ]
        producer.close()


def test_a_bad_message_is_its_own_fault_only() -> None:
    def broker(number: int, batch: pa.RecordBatch) -> Reply:
        if b"bad" in batch.column("payload").to_pylist():
            return Reply(number, batch.num_rows, error=BadRequest("payload", "not bad", "bad"))
        return ok(number, batch)

    with (
        Client(transport=FakeTransport(broker)) as client,
        client.producer("t", linger_ms=60_000) as producer,
    ):
        good, bad = producer.send(b"good"), producer.send(b"bad")
        producer.flush()
        assert good.result(SECONDS_MAX) > 0
        with pytest.raises(BadRequest):
            bad.result(SECONDS_MAX)


def test_asynchronous() -> None:
    async def main() -> None:
        async with AsyncClient(transport=FakeTransport(ok)) as client:
            async with client.producer("t", batch_rows=2, linger_ms=60_000) as producer:
                one = await producer.send(b"x")
                two = await producer.send(b"y")
                assert [await one, await two] == [1000, 1001]
                result = await (await producer.send_batch([b"a", b"b", b"c"]))
                assert result.ids.tolist() == [2000, 2001, 2002]
                last = await producer.send(b"z")
            assert await last == 3000

    asyncio.run(main())


def test_a_closed_producer_says_so() -> None:
    with Client(transport=FakeTransport(ok)) as client:
        producer = client.producer("t")
        producer.send(b"x")
        producer.close()
        producer.close()
        for call in (lambda: producer.send(b"x"), lambda: producer.send_batch(BATCH)):
            with pytest.raises(Unavailable, match="closed"):
                call()


def test_bad_settings() -> None:
    with Client(transport=FakeTransport(ok)) as client:
        for settings in ({"window": 129}, {"window": 0}, {"batch_rows": 0}, {"acks": "maybe"}):
            with pytest.raises(BadRequest):
                client.producer("t", **settings)


def test_other_tasks_go_on_while_the_brokers_time_is_asked_for() -> None:
    may_answer = threading.Event()

    def answer(body: dict[str, int]) -> dict[str, int]:
        assert may_answer.wait(SECONDS_MAX)
        return {"broker_us": 9_000_000}

    async def send() -> list[int]:
        transport = FakeTransport(ok, actions={"clock": answer})
        async with AsyncClient(transport=transport) as client, client.producer("t") as producer:
            sending = asyncio.ensure_future(
                producer.send_batch([{"payload": b"x", "delay": 1}, {"payload": b"y", "delay": 2}])
            )
            asyncio.get_running_loop().call_later(0.05, may_answer.set)
            found = await (await sending)
            return list(found.ids.tolist())

    assert asyncio.run(send()) == [1000, 1001]
