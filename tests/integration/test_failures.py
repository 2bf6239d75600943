"""Failures as a user meets them, in process and over the wire: nacks, lives, letters, priorities.

Not covered: when exactly what dies (tests/rules), the bytes (tests/unit/wire).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import AsyncClient, Client, Message
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.answers import is_ok
from tests.patience import PATIENCE_SECONDS

CLOCK = SystemClock()


@pytest.fixture
def server() -> Iterator[FlightServer]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    running = FlightServer(broker)
    running.start()
    yield running
    running.stop()
    broker.stop()


@pytest.fixture(params=["flight", "local"])
def client(request: pytest.FixtureRequest, server: FlightServer) -> Iterator[Client]:
    if request.param == "local":
        made = Client(transport=LocalTransport(server._broker))
    else:
        made = Client(server.url, retry_ms_max=5_000)
    with made:
        made.create_topic("work", max_attempts=2)
        made.create_topic("work.dead")
        yield made


def letters(client: Client, count: int) -> list[Message]:
    """So many dead letters, acked."""
    with client.consume("work.dead", max_messages=count, idle_ms=10_000) as found:
        got = []
        for letter in found:
            letter.ack()
            got.append(letter)
    assert len(got) == count
    return got


def died_of(letter: Message) -> tuple[bytes, str, str]:
    headers = letter.headers
    return letter.payload, headers["dejaq-dead-reason"], headers["dejaq-dead-attempts"]


def test_a_nack_says_why(client: Client) -> None:
    client.send("work", "a")
    with client.consume("work", idle_ms=10_000) as consumer:
        assert is_ok(next(consumer).nack(reason="first"))
        again = next(consumer)
        assert again.attempt == 2
        assert is_ok(again.nack(reason="x" * 5_000 + "ü"))
    assert died_of(letters(client, 1)[0]) == (b"a", "x" * 1_024, "2")


def test_a_nack_can_be_the_last(client: Client) -> None:
    client.send_batch("work", ["a", "b"])
    with client.consume_batches("work", idle_ms=10_000) as batches:
        got = next(batches)
        assert is_ok(got.nack(dead=True, reason="line 1\nline 2\x1f"))
    reasons = [died_of(letter) for letter in letters(client, 2)]
    assert reasons == [(b"a", "line 1\nline 2 ", "1"), (b"b", "line 1\nline 2 ", "1")]


def test_some_of_a_batch_can_be_the_last(client: Client) -> None:
    client.send_batch("work", ["a", "b", "c"])
    with client.consume_batches("work", idle_ms=10_000) as batches:
        got = next(batches)
        assert is_ok(got.take([1]).nack(dead=True))
        assert is_ok(got.take([0, 2]).ack())
    assert [letter.payload for letter in letters(client, 1)] == [b"b"]


def test_a_nack_that_cannot_be_is_refused(client: Client) -> None:
    client.send("work", "a")
    with client.consume("work", idle_ms=10_000) as consumer:
        message = next(consumer)
        with pytest.raises(BadRequest, match=r"^reason: a text"):
            message.nack(reason=5)  # type: ignore[call-overload]
        with pytest.raises(BadRequest, match=r"^delay: none for a message that dies now"):
            message.nack(dead=True, delay=1)
        with pytest.raises(BadRequest, match=r"^delay: not negative"):
            message.nack(delay=-1)
        assert is_ok(message.ack(wait=True))


def test_work_that_raises_was_an_attempt(client: Client) -> None:
    client.send("work", "a")
    for _ in range(2):
        with (
            pytest.raises(ZeroDivisionError),
            client.consume("work", idle_ms=10_000) as consumer,
        ):
            for message in consumer:
                assert message.payload == b"a"
                raise ZeroDivisionError
    assert died_of(letters(client, 1)[0]) == (b"a", "ZeroDivisionError", "2")


def test_work_that_raises_on_a_batch_was_an_attempt(client: Client) -> None:
    client.send_batch("work", ["a", "b"])
    for _ in range(2):
        with (
            pytest.raises(ZeroDivisionError),
            client.consume_batches("work", idle_ms=10_000) as batches,
        ):
            for _batch in batches:
                raise ZeroDivisionError
    assert [died_of(letter)[1] for letter in letters(client, 2)] == ["ZeroDivisionError"] * 2


def test_what_was_settled_before_its_work_raised_stays_so(client: Client) -> None:
    client.send("work", "a")
    with (
        pytest.raises(ZeroDivisionError),
        client.consume("work", idle_ms=10_000) as consumer,
    ):
        for message in consumer:
            message.ack()
            raise ZeroDivisionError
    stats = client.stats("work")
    assert (stats["acked"], stats["nacked"], stats["scheduled"]) == (1, 0, 0)


def test_a_consumer_that_is_closed_wears_nothing_out(client: Client) -> None:
    client.send_batch("work", ["a", "b", "c"])
    for _ in range(4):
        with client.consume("work", idle_ms=10_000) as consumer:
            assert next(consumer).payload == b"a"
    assert client.stats("work")["dead"] == 0
    assert client.stats("work.dead")["enqueued"] == 0


def test_lives_end(client: Client) -> None:
    soon = CLOCK.now_ms() + 50
    client.send("work", "a", delay=60, expires=soon)
    client.send("work", "b", expires=datetime.fromtimestamp(soon / 1_000, UTC), delay=60)
    client.send("work", "c", ttl=timedelta(milliseconds=20), due=soon)
    client.send("work", "kept", delay=60, ttl=0)
    client.send_batch(
        "work",
        [
            {"payload": "d", "delay": 60, "expires": soon},
            {"payload": "e", "ttl": 0.05, "due": soon},
            {"payload": "kept, too", "delay": 60},
        ],
    )
    now = datetime.fromtimestamp(CLOCK.now_us() / 1e6, UTC)
    times = pa.array([now + timedelta(milliseconds=40), None], pa.timestamp("us", "UTC"))
    dues = pa.array([soon + 60_000] * 2)
    client.send_batch("work", pa.table({"payload": ["f", "kept"], "expires": times, "due": dues}))
    with client.producer("work") as producer:
        assert producer.send("g", delay=60, expires=soon).result(PATIENCE_SECONDS) >= 0
    got = letters(client, 7)
    assert sorted(letter.payload for letter in got) == [b"%c" % c for c in b"abcdefg"]
    assert {letter.headers["dejaq-dead-reason"] for letter in got} == {"expired"}
    assert sorted(client.peek("work")["payload"].to_pylist()) == [b"kept", b"kept", b"kept, too"]


def test_lives_that_cannot_be_are_refused(client: Client) -> None:
    with pytest.raises(BadRequest, match=r"^ttl: expires or ttl, not both"):
        client.send("work", "a", ttl=1, expires=5)
    with pytest.raises(BadRequest, match=r"^ttl: not negative"):
        client.send("work", "a", ttl=-1)
    with pytest.raises(BadRequest, match=r"^expires: a datetime with a time zone"):
        client.send("work", "a", expires=datetime(2030, 1, 1))
    with pytest.raises(BadRequest, match=r"^messages\[1\].ttl: "):
        client.send_batch("work", ["a", {"payload": "b", "ttl": "long"}])
    with pytest.raises(BadRequest, match=r"^messages\[0\].expires: "):
        client.send_batch("work", [{"payload": "b", "expires": -1}])
    naive = pa.array([datetime(2030, 1, 1)], pa.timestamp("us"))
    with pytest.raises(BadRequest, match=r"^expires: timestamps with a time zone"):
        client.send_batch("work", pa.table({"payload": ["a"], "expires": naive}))
    assert client.stats("work")["enqueued"] == 0


def test_letters_go_back(client: Client) -> None:
    client.create_topic("other")
    rows = [{"payload": f"{n}", "group": "ab"[n % 2], "ttl": 0, "key": f"k{n}"} for n in range(50)]
    client.send_batch("work", rows)
    with client.consume("work.dead", max_messages=50, idle_ms=10_000) as consumer:
        for letter in consumer:
            letter.nack()
    assert client.redrive("work.dead", reason="refused").moved == 0
    moved = client.redrive("work.dead", group="a", count=10)
    assert (moved.moved, moved.left) == (10, 0)
    ids = client.peek("work.dead", limit=3)["id"].to_pylist()
    assert client.redrive("work.dead", ids=ids, to="other").moved == 3
    assert client.redrive("work.dead").moved == 37
    got: set[str | None] = set()
    for topic, count in (("work", 47), ("other", 3)):
        with client.consume(topic, max_messages=count, idle_ms=10_000) as consumer:
            for message in consumer:
                assert message.attempt == 1
                assert message.headers == {}
                got.add(message.key)
                message.ack()
    assert got == {f"k{n}" for n in range(50)}
    assert client.redrive("work.dead").moved == 0


def test_letters_are_looked_at_and_thrown_away(client: Client) -> None:
    client.send_batch("work", [{"payload": f"{n}", "group": "ab"[n % 2]} for n in range(20)])
    with client.consume_batches("work", max_messages=20, idle_ms=10_000) as batches:
        for got in batches:
            got.nack(dead=True, reason="broken")
    client.send("work", "late", ttl=0)
    with client.consume("work.dead", max_messages=21, idle_ms=10_000) as consumer:
        for letter in consumer:
            letter.nack()
    assert client.dead_letters("work.dead").num_rows == 21
    found = client.dead_letters("work.dead", reason="broken", group="a", limit=3)
    assert {int(payload) % 2 for payload in found["payload"].to_pylist()} == {0}
    assert found.num_rows == 3
    assert client.dead_letters("work.dead", reason="expired").num_rows == 1
    assert client.purge_letters("work.dead", reason="broken", count=2) == 2
    assert client.purge_letters("work.dead", ids=found["id"].to_pylist()) == 2
    assert client.purge_letters("work.dead", group="b") == 9
    assert client.purge_letters("work.dead", reason="no such") == 0
    assert client.purge_letters("work.dead") == 8
    assert client.dead_letters("work.dead").num_rows == 0


def test_a_redrive_that_cannot_be_is_refused(client: Client) -> None:
    with pytest.raises(TopicUnknown):
        client.redrive("no-such")
    with pytest.raises(BadRequest, match=r"^to: another topic"):
        client.redrive("work.dead", to="work.dead")
    with pytest.raises(BadRequest, match=r"^reason: a text"):
        client.redrive("work.dead", reason=5)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match=r"^count: a whole number"):
        client.redrive("work.dead", count=-1)
    client.send("work", "a", ttl=0, delay=0.001)
    with client.consume("work.dead", max_messages=1, idle_ms=10_000) as consumer:
        next(consumer).nack()
    with pytest.raises(TopicUnknown):
        client.redrive("work.dead", to="no-such")
    assert client.peek("work.dead").num_rows == 1


def test_priorities(client: Client) -> None:
    client.create_topic("mail", kind="priority")
    client.send("mail", "low", priority=9, key="low")
    client.send("mail", "mid")
    client.send("mail", "high", priority=0)
    with pytest.raises(BadRequest, match=r"^priority: from 0 to 65535"):
        client.move("mail", key="low", priority=1 << 16)
    with pytest.raises(BadRequest, match=r"^due: something that changes"):
        client.move("mail", key="low")
    assert client.move("mail", key="low", priority=40_000, group="g").ok
    with client.consume("mail", max_messages=3, idle_ms=10_000) as consumer:
        got = []
        for message in consumer:
            got.append((message.payload, message.priority, message.group))
            message.ack()
    assert got == [(b"high", 0, ""), (b"mid", 32_768, ""), (b"low", 40_000, "g")]


def test_asynchronous(server: FlightServer) -> None:
    async def main() -> tuple[str, int]:
        async with AsyncClient(server.url, retry_ms_max=5_000) as client:
            await client.create_topic("work", max_attempts=1)
            await client.create_topic("work.dead")
            await client.send("work", "a", ttl=60)
            with pytest.raises(KeyError):
                async with client.consume("work", idle_ms=10_000) as consumer:
                    async for _message in consumer:
                        raise KeyError
            async with client.consume("work.dead", max_messages=1) as consumer:
                async for letter in consumer:
                    reason = letter.headers["dejaq-dead-reason"]
                    await letter.nack()
            moved = await client.redrive("work.dead")
            return reason, moved.moved

    assert asyncio.run(main()) == ("KeyError", 1)
