"""The asynchronous client: what it asks of the broker, and what it refuses itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.client._aio.client import AsyncClient
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.model import Topic
from dejaqueue.schema import messages
from tests.unit.client.fake_transport import FakeTransport, ok

TOPIC = Topic("t").to_dict()
OF_A_NEWER_BROKER = {"field_of_a_later_version": {"a": 1}}


def run(transport: FakeTransport, main: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        async with AsyncClient(transport=transport) as client:
            return await main(client)

    return asyncio.run(inside())


def test_topics() -> None:
    transport = FakeTransport(
        actions={
            "create_topic": TOPIC,
            "alter_topic": TOPIC,
            "describe_topic": TOPIC | OF_A_NEWER_BROKER,
            "list_topics": {"topics": [TOPIC | OF_A_NEWER_BROKER], **OF_A_NEWER_BROKER},
            "stats": {"scheduled": 3},
        }
    )

    async def main(client: AsyncClient) -> None:
        assert await client.create_topic("t", lease_ms=50) == Topic("t")
        assert await client.alter_topic("t", lease_ms=60) == Topic("t")
        assert await client.topic("t") == Topic("t")
        assert await client.topics() == [Topic("t")]
        assert (await client.stats("t")).scheduled == 3
        await client.delete_topic("t")
        await client.connect()

    run(transport, main)
    assert transport.calls == [
        ("create_topic", {"name": "t", "lease_ms": 50, "exist_ok": True}),
        ("alter_topic", {"name": "t", "lease_ms": 60}),
        ("describe_topic", {"name": "t"}),
        ("list_topics", {}),
        ("stats", {"topic": "t"}),
        ("delete_topic", {"name": "t"}),
        ("clock", {}),
    ]


def test_singles_of_one_moment_travel_together() -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> list[int]:
        return await asyncio.gather(*[client.send("t", b"%d" % n) for n in range(50)])

    ids = run(transport, main)
    assert len(set(ids)) == 50
    assert len(transport.writes) == 1
    assert len(transport.writes[0].sent) <= 2


def test_kinds_of_messages_have_streams_of_their_own() -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> None:
        await client.send("t", b"a")
        await client.send("t", b"a", due=1_800_000_000_000)
        await client.send("t", b"a", key="k")
        await client.send("t", b"b")

    run(transport, main)
    schemas = [write.sent[0][1].schema.names for write in transport.writes]
    assert schemas == [
        ["payload"],
        ["payload", "due"],
        ["payload", "key", "group", "priority", "tags", "headers", "expires"],
    ]
    producers = {write.stream.producer for write in transport.writes}
    assert len(producers) == 3
    assert all(producers)


def test_delays_go_by_the_brokers_clock() -> None:
    transport = FakeTransport(ok, actions={"clock": {"broker_us": 5_000_000_000}})

    async def main(client: AsyncClient) -> None:
        await client.send("t", b"a", delay=2)
        await client.send("t", b"a", delay=2)

    run(transport, main)
    due_ms = transport.writes[0].sent[0][1].column("due")[0].as_py()
    assert 5_002_000 <= due_ms <= 5_002_000 + 10_000
    assert len([call for call in transport.calls if call[0] == "clock"]) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.move("t", due=5),
        lambda client: client.move("t", id=1, key="a", due=5),
        lambda client: client.move("t", id="a", due=5),
        lambda client: client.move("t", ids=[1, 2], due=[5]),
        lambda client: client.move("t", ids=np.array([1]), due=np.array([-5])),
        lambda client: client.cancel("t", keys="abc"),
        lambda client: client.cancel("t", key=5),
        lambda client: client.send("t", 5),
        lambda client: client.send("no such name!", b"x"),
        lambda client: client.send_batch("t", [b"x"], acks="some"),
        lambda client: client.create_topic("t", lease=5),
        lambda client: client.create_topic("bad name"),
        lambda client: client.alter_topic("t", kind="fair"),
        lambda client: client.topic(""),
        lambda client: client.peek("t", limit=-1),
        lambda client: client.peek("t", state="asleep"),
        lambda client: client.peek("t", tags_any="mail"),
        lambda client: client.peek("t", colour="red"),
        lambda client: client.histogram("t", bucket=1, due_from=5),
        lambda client: client.move_where("t", by="1h", group="g"),
        lambda client: client.move_where("t", due="tomorrow", group="g"),
        lambda client: client.cancel_where("t", group=7),
        lambda client: client.counts("t", limit=0),
        lambda client: client.move("t", id=1),
        lambda client: client.move("t", id=1, priority=70_000),
        lambda client: client.move("t", ids=[1, 2], group=["a"]),
        lambda client: client.peek("t", ids=[1], keys=["a"]),
        lambda client: client.peek("t", due_from="now"),
    ],
)
def test_bad_calls_never_reach_the_broker(call: Callable[[AsyncClient], Awaitable[Any]]) -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> None:
        with pytest.raises(BadRequest):
            await call(client)

    run(transport, main)
    assert transport.calls == []
    assert not any(write.sent for write in transport.writes)


@pytest.mark.parametrize(
    "settings",
    [
        {"prefetch": 0},
        {"prefetch": 2_000_000},
        {"batch_rows": 0},
        {"lease_ms": 5},
        {"idle_ms": -1},
        {"max_messages": 1.5},
    ],
    ids=str,
)
def test_bad_consumers(settings: dict[str, Any]) -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(BadRequest):
            client.consume_batches("t", **settings)

    run(FakeTransport(), main)


def test_peek_goes_on_where_the_page_ended() -> None:
    transport = FakeTransport()

    def page(first: int, rows: int, following: dict[str, Any] | None) -> pa.Table:
        columns = {
            name: pa.nulls(rows, messages.PEEK.field(name).type)
            for name in ("key", "group", "tags", "headers", "consumer")
        }
        columns |= {
            "id": pa.array(range(first, first + rows)),
            "due": pa.array(range(first, first + rows)),
            "attempts": pa.array([0] * rows, pa.uint16()),
            "priority": pa.array([0] * rows, pa.uint16()),
            "payload": pa.array([b""] * rows),
            "state": pa.array(["scheduled"] * rows),
        }
        table = pa.table({name: columns[name] for name in messages.PEEK.names})
        return table.replace_schema_metadata(following and {"next": json.dumps(following)})

    # A page may be short and not the last: it was long enough to look for it.
    transport.pages = [
        page(0, 10_000, {"due": 9_999, "id": 9_999}),
        page(10_000, 10, {"due": 19_999, "id": 19_999}),
        page(20_000, 7, None),
    ]
    table = run(transport, lambda client: client.peek("t", limit=25_000))
    assert table.num_rows == 10_017
    assert table.schema.metadata is None
    assert [ticket["limit"] for ticket in transport.tickets] == [10_000, 10_000, 10_000]
    assert [ticket["after"] for ticket in transport.tickets] == [
        None,
        {"due": 9_999, "id": 9_999},
        {"due": 19_999, "id": 19_999},
    ]
    assert run(transport, lambda client: client.peek("t", limit=0)).num_rows == 0


def test_a_closed_client_says_so() -> None:
    async def main() -> None:
        client = AsyncClient(transport=FakeTransport(ok))
        await client.close()
        await client.close()
        with pytest.raises(Unavailable, match="closed"):
            await client.send("t", b"x")
        with pytest.raises(Unavailable, match="closed"):
            client.consume("t")

    asyncio.run(main())
