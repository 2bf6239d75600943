"""Browsing and tag filters through both transports: looking, counting, moving, cancelling."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.client import AsyncClient, Client
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.model import RowStatus
from tests.integration.test_client import broker, client, in_ms, server, topic

__all__ = ["broker", "client", "server", "topic"]

HOUR_MS = 3_600_000


def fill(client: Client, topic: str, due_ms: int, rows: int = 30_000) -> None:
    """Messages a millisecond apart, of groups g0 to g2, every hundredth tagged."""
    table = pa.table(
        {
            "payload": [b"%d" % n for n in range(rows)],
            "due": due_ms + np.arange(rows),
            "group": [f"g{n % 3}" for n in range(rows)],
            "tags": [["rare"] if n % 100 == 0 else [] for n in range(rows)],
        }
    )
    assert client.send_batch(topic, table).ok


def test_pages_counts_and_histograms(client: Client, topic: str) -> None:
    due_ms = in_ms(HOUR_MS)
    fill(client, topic, due_ms)
    table = client.peek(topic, limit=25_000)
    assert table["payload"].to_pylist() == [b"%d" % n for n in range(25_000)]
    assert client.peek(topic, limit=100_000, group="g1").num_rows == 10_000
    rare = client.peek(topic, limit=1_000, tags_any=["rare"], due_from=due_ms + 10_000)
    assert rare["payload"].to_pylist() == [b"%d" % n for n in range(10_000, 30_000, 100)]
    assert rare["tags"].to_pylist() == [["rare"]] * 200
    assert client.peek(topic, state="ready").num_rows == 0
    assert client.counts(topic)["scheduled"] == 30_000
    assert client.counts(topic, by="group") == {"g0": 10_000, "g1": 10_000, "g2": 10_000}
    assert client.counts(topic, by="group", limit=1) == {"g0": 10_000}
    assert client.counts(topic, by="tag") == {"rare": 300}
    window: dict[str, Any] = {"due_from": due_ms, "due_to": due_ms + 25_000}
    found = client.histogram(topic, bucket=timedelta(seconds=10), **window)
    assert found.counts.tolist() == [10_000, 10_000, 5_000]
    assert (found.dues_ms - due_ms).tolist() == [0, 10_000, 20_000]
    assert (len(found), found.bucket_ms, found.error_max) == (3, 10_000, 0)
    assert client.histogram(topic, bucket=10, tags_any=["rare"], **window).counts.sum() == 250
    assert client.histogram(topic, bucket=10, exact=False, **window).counts.sum() == 25_000


def test_moves_and_cancels_by_filter(client: Client, topic: str) -> None:
    due_ms = in_ms(HOUR_MS)
    fill(client, topic, due_ms)
    early: dict[str, Any] = {"due_to": due_ms + 15_000, "group": "g0"}
    assert client.move_where(topic, by=timedelta(hours=1), dry_run=True, **early) == 5_000
    assert client.move_where(topic, by=timedelta(hours=1), **early) == 5_000
    assert client.move_where(topic, by=timedelta(hours=1), **early) == 0
    assert client.histogram(
        topic, bucket=HOUR_MS / 1000, due_from=due_ms, due_to=due_ms + 2 * HOUR_MS
    ).counts.tolist() == [25_000, 5_000]
    later: dict[str, Any] = {"due_from": due_ms + HOUR_MS}
    assert client.move_where(topic, by=-HOUR_MS / 1000, set_group="back", **later) == 5_000
    assert client.counts(topic, by="group") == {
        "g1": 10_000, "g2": 10_000, "back": 5_000, "g0": 5_000,
    }  # fmt: skip
    assert client.cancel_where(topic, group="g1", dry_run=True) == 10_000
    assert client.cancel_where(topic, group="g1") == 10_000
    assert client.purge(topic) == 20_000
    assert client.peek(topic).num_rows == 0
    assert client.stats(topic)["cancelled"] == 30_000


def test_priority_and_group_of_named_messages(client: Client, topic: str) -> None:
    due = in_ms(HOUR_MS)
    ids = client.send_batch(
        topic, [{"payload": b"x", "due": due, "key": f"k{n}"} for n in range(4)]
    )
    assert client.move(topic, id=int(ids.ids[0]), priority=7).ok
    assert client.move(topic, keys=["k1", "k2"], priority=[1, 2], group=["a", "b"]).ok
    assert client.move(topic, key="nobody", group="a") is RowStatus.NOT_FOUND
    seen = client.peek(topic).to_pylist()
    assert [row["priority"] for row in seen] == [7, 1, 2, 32_768]
    assert [row["group"] for row in seen] == [None, "a", "b", None]
    assert {row["due"] for row in seen} == {due}
    assert client.peek(topic, priority_from=1, priority_to=2)["key"].to_pylist() == ["k1", "k2"]


def test_consumers_get_what_their_tags_say(client: Client, topic: str) -> None:
    client.send_batch(
        topic,
        [
            {"payload": "mail", "tags": ["mail"]},
            {"payload": "test mail", "tags": ["mail", "test"]},
            {"payload": "text", "tags": ["text"]},
            {"payload": "plain"},
        ],
    )
    with client.consume(topic, tags_any=["mail", "text"], tags_none=["test"], max_messages=2) as c:
        got = [(message.payload, message.ack(wait=True)) for message in c]
    assert [payload for payload, _ in got] == [b"mail", b"text"]
    with client.consume_batches(topic, tags_all=("mail", "test"), max_messages=1) as batches:
        for batch in batches:
            assert batch.batch["payload"].to_pylist() == [b"test mail"]
            batch.ack()
    with client.consume(topic, tags_any=["nothing"], idle_ms=50) as nobody:
        assert list(nobody) == []
    with client.consume(topic, max_messages=1) as rest:
        assert [message.payload for message in rest] == [b"plain"]


@pytest.mark.parametrize(
    "call",
    [
        lambda client, topic: client.peek(topic, state="asleep"),
        lambda client, topic: client.counts(topic, by="colour"),
        lambda client, topic: client.histogram(topic, bucket=0, due_from=0, due_to=9),
        lambda client, topic: client.histogram(topic, bucket=0.001, due_from=0, due_to=10**9),
        lambda client, topic: client.move_where(topic, group="a"),
        lambda client, topic: client.move_where(topic, due=5, by=5),
        lambda client, topic: client.cancel_where(topic, state="leased"),
        lambda client, topic: client.consume(topic, tags_any="mail"),
        lambda client, topic: client.consume(topic, tags_any=["x" * 100]),
    ],
)
def test_what_is_wrong_is_said(client: Client, topic: str, call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadRequest):
        call(client, topic)


def test_a_topic_that_is_not_there(client: Client) -> None:
    for call in (client.peek, client.counts, client.purge):
        with pytest.raises(TopicUnknown):
            call("nowhere")


def test_the_asynchronous_client_can_do_the_same(server: FlightServer, topic: str) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            due = in_ms(HOUR_MS)
            await client.send_batch(topic, [{"payload": b"x", "due": due, "group": "a"}] * 3)
            assert (await client.peek(topic, group="a")).num_rows == 3
            assert (await client.counts(topic, by="group")) == {"a": 3}
            found = await client.histogram(topic, bucket=1, due_from=due, due_to=due + 1)
            assert found.counts.tolist() == [3]
            assert await client.move_where(topic, set_priority=1, group="a") == 3
            assert await client.cancel_where(topic, group="b") == 0
            assert await client.purge(topic) == 3

    asyncio.run(main())
