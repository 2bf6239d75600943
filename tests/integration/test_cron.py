"""Entries of cron topics through both clients, over Flight and in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import AsyncClient, Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.schema.cron import HEADER_ENTRY, HEADER_FIRING, CronEntry, Misfire
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS

CLOCK = SystemClock()


@pytest.fixture(params=["flight", "local"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    if request.param == "local":
        with Client(transport=LocalTransport(broker)) as made:
            yield made
    else:
        server = FlightServer(broker)
        server.start()
        with Client(server.url, retry_ms_max=5_000) as made:
            yield made
        server.stop()
    broker.stop()


def test_entries_are_put_listed_changed_and_dropped(client: Client) -> None:
    client.create_topic("c", kind="cron", partitions=3)
    cron = client.cron("c")
    start = datetime(2100, 1, 1, tzinfo=UTC)
    made = cron.put("daily", cron="0 9 * * *", zone="Asia/Tokyo", start=start, payload=b"\x00\xff")
    assert made.next_ms == int(start.timestamp() * 1_000)  # nine in Tokyo
    assert made == cron.get("daily")
    assert made.payload == b"\x00\xff"
    many = [CronEntry(f"e{n:04}", every_ms=3_600_000, misfire=Misfire.ALL) for n in range(2_500)]
    assert len(cron.put_all(many)) == 2_500
    assert [entry.name for entry in cron.entries()] == ["daily", *(entry.name for entry in many)]
    assert [entry.name for entry in cron.page(after="e2497")] == ["e2498", "e2499"]
    [paused] = cron.pause("e0003")
    assert (paused.paused, paused.next_ms) == (True, -1)
    [resumed] = cron.resume("e0003")
    assert resumed.next_ms > CLOCK.now_ms()
    assert cron.drop("e0003", "none") == 1
    with pytest.raises(BadRequest, match="name of an entry"):
        cron.get("e0003")


def test_a_message_comes_on_time_and_says_whose_it_is(client: Client) -> None:
    client.create_topic("c", kind="cron")
    client.cron("c").put("often", cron="* * * * * *", payload=b"tick")
    message_id = client.cron("c").put("now", cron="0 0 1 1 *") and client.cron("c").run("now")
    seen = []
    with client.consume("c", max_messages=4, idle_ms=5_000) as messages:
        for message in messages:
            seen.append((dict(message.headers), message.id))
            message.ack()
    # A second may pass between the two calls: then the other entry fires before.
    [now] = [number for headers, number in seen if headers[HEADER_ENTRY] == "now"]
    assert now == message_id
    times = [int(headers[HEADER_FIRING]) for headers, _ in seen if headers[HEADER_ENTRY] == "often"]
    assert times == [times[0], times[0] + 1_000, times[0] + 2_000]
    assert times[0] % 1_000 == 0


def test_previews(client: Client) -> None:
    client.create_topic("c", kind="cron")
    cron = client.cron("c")
    cron.put("daily", cron="30 2 * * *", zone="Europe/Berlin", misfire="skip")
    eve = datetime(2026, 3, 28, 12, tzinfo=UTC)
    firings = [
        datetime.fromtimestamp(ms / 1_000, UTC) for ms in cron.next_ms("daily", 2, after=eve)
    ]
    assert firings == [datetime(2026, 3, d, 0, 30, tzinfo=UTC) for d in (30, 31)]
    entry = CronEntry("x", cron="30 2 * * *", zone="Europe/Berlin")
    [first] = cron.preview_ms(entry, 1, after=eve)
    assert datetime.fromtimestamp(first / 1_000, UTC) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert len(cron.preview_ms(CronEntry("x", every_ms=5_000), 1_000)) == 1_000


def test_what_is_wrong_is_refused(client: Client) -> None:
    client.create_topic("t")
    client.create_topic("c", kind="cron")
    with pytest.raises(BadRequest, match="kind cron"):
        client.cron("t").put("a", every_ms=5_000)
    with pytest.raises(TopicUnknown):
        client.cron("none").page()
    with pytest.raises(BadRequest, match=r"entry\.colour"):
        client.cron("c").put("a", colour="red")
    with pytest.raises(BadRequest, match=r"entry\.cron"):
        client.cron("c").put("a", cron="never")
    with pytest.raises(BadRequest, match="limit"):
        client.cron("c").page(limit=0)
    with pytest.raises(BadRequest, match="count"):
        client.cron("c").preview_ms(CronEntry("a", every_ms=5_000), 2_000)
    action = client._core.transport.action
    for name, body, text in (
        ("cron_put", {"topic": "c"}, "entries"),
        ("cron_put", {"topic": "c", "entries": [5]}, "entry"),
        ("cron_drop", {"topic": "c", "names": "a"}, "names"),
        ("cron_drop", {"topic": "c", "names": [5]}, "names"),
        ("cron_get", {"topic": "c"}, "name"),
        ("cron_get", {"topic": "c", "name": "\ud800"}, "name"),
        ("cron_list", {"topic": "c", "colour": 1}, "colour"),
        ("cron_list", {}, "topic"),
        ("cron_next", {"topic": "c", "entry": 5}, "entry"),
    ):
        with pytest.raises(BadRequest, match=text):
            action(name, body).result(PATIENCE_SECONDS)


def test_the_asynchronous_client() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()

    async def work() -> None:
        async with AsyncClient(transport=LocalTransport(broker)) as client:
            await client.create_topic("c", kind="cron")
            cron = client.cron("c")
            await cron.put("a", every_ms=60_000)
            assert [entry.name async for entry in cron.entries()] == ["a"]
            assert (await cron.get("a")).next_ms == (await cron.next_ms("a", 1))[0]

    asyncio.run(work())
    broker.stop()
