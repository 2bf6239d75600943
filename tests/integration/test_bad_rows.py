"""Covers: a stored row whose texts are not UTF-8, from every side (rule 15).

Twice: as the broker hands it out now, and as one hands it out that does not mend it, which is for
our clients to bear: they nack the row with the reason, and go on. Not covered: what the partition
does with such rows (tests/rules).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dejaqueue
from dejaqueue import Client
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.cli.main import main
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.errors import BadRequest
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.schema.checks import SendColumns
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS

BAD = b"\xc3\x28"
MENDED = "\ufffd("
COUNT = 6
BAD_ROW = 2


@dataclass
class Site:
    """A broker with COUNT messages, of which one has a key and headers that are no text."""

    broker: Broker
    url: str
    http: str


def text(contents: list[bytes]) -> pa.StringArray:
    return pa.array(contents, pa.binary()).view(pa.utf8())


def store(broker: Broker) -> None:
    contents = [BAD if row == BAD_ROW else b"%d" % row for row in range(COUNT)]
    columns = SendColumns(
        rows=COUNT,
        dues_ms=np.full(COUNT, broker.clock.now_ms(), dtype=np.int64),
        payloads=pa.array([b"%d" % row for row in range(COUNT)], pa.binary()),
        keys=text(contents),
        groups=None,
        tags=None,
        headers=text([b"name\x1f" + content for content in contents]),
        partitions=None,
        payload_bytes=COUNT,
    )
    replied: Future[Reply] = Future()
    broker.open_write(WriteStream("t")).submit_columns(1, columns, None, replied.set_result)
    assert replied.result(PATIENCE_SECONDS).error is None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url=str(tmp_path / "data"))))
    broker.start()
    broker.create_topic(Topic("t", history=True, max_attempts=2))
    store(broker)
    broker.stop()  # they are read from a journal that was there before
    broker = Broker(BrokerSettings(journal=JournalSettings(url=str(tmp_path / "data"))))
    broker.start()
    gate = Gate(broker.keys)
    flight = FlightServer(broker, gate=gate)
    flight.start()
    http = HttpServer(Service(broker, gate, lambda: True), "127.0.0.1", 0)
    http.start()
    yield Site(broker, flight.url, f"http://127.0.0.1:{http.port}")
    flight.stop()
    broker.stop()
    http.stop()


@pytest.fixture
def unmended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker hands rows out as they are stored; clients in this process are as they are."""
    monkeypatch.setattr(
        "dejaqueue.broker.consumers.gathering.read_stored",
        lambda journal, *rest: journal.read(*rest),
    )
    monkeypatch.setattr(
        "dejaqueue.broker.calls.scan.read_stored", lambda journal, *rest: journal.read(*rest)
    )


def keys_of(rows: list[dict[str, Any]]) -> list[str]:
    return [row["key"] for row in rows]


EXPECTED = [MENDED if row == BAD_ROW else str(row) for row in range(COUNT)]


def test_a_consumer_gets_all_rows(site: Site) -> None:
    with Client(site.url) as client, client.consume("t") as consumer:
        found = []
        for message in consumer:
            found.append((message.key, dict(message.headers), message.payload))
            message.ack()
            if len(found) == COUNT:
                break
    assert found == [(key, {"name": key}, b"%d" % row) for row, key in enumerate(EXPECTED)]


REASON = "key of the message: text in UTF-8, got: 'other bytes'"
READABLE = [(str(row), 1) for row in range(COUNT) if row != BAD_ROW]


def check_dead(client: Client) -> None:
    """The bad row becomes a dead letter after its two attempts, with the reason; no other does."""
    clock = SystemClock()
    found: list[Any] = []
    until_us = clock.now_us() + PATIENCE_SECONDS * 1_000_000
    while not found:
        assert clock.now_us() < until_us, "it did not die"
        clock.wait_until(clock.now_us() + 50_000, Wake())
        if client.stats("t")["leased"] == 0 and "t.dead" in {one.name for one in client.topics()}:
            found = client.dead_letters("t.dead").to_pylist()
    [letter] = found
    told = dict(letter["headers"])
    assert (letter["payload"], told["dejaq-dead-key"]) == (b"%d" % BAD_ROW, MENDED)
    assert (told["dejaq-dead-reason"], told["dejaq-dead-attempts"]) == (REASON, "2")
    stats = client.stats("t")
    assert (stats["ready"], stats["scheduled"], stats["leased"]) == (0, 0, 0)


@pytest.mark.usefixtures("unmended")
def test_a_consumer_nacks_a_row_that_it_cannot_read_and_goes_on(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(site.url) as client, client.consume("t", prefetch=1) as consumer:
        found = []
        for message in consumer:
            assert message.headers == {"name": message.key}
            found.append((message.key, message.attempt))
            message.ack()
            if len(found) == COUNT - 1:
                break
        check_dead(client)
    assert found == READABLE
    assert f"topic t: 1 messages are nacked, the first of them {BAD_ROW}: {REASON}" in caplog.text


@pytest.mark.usefixtures("unmended")
def test_an_async_consumer_nacks_a_row_that_it_cannot_read_and_goes_on(site: Site) -> None:
    async def run() -> list[tuple[str | None, int]]:
        found: list[tuple[str | None, int]] = []
        async with dejaqueue.AsyncClient(site.url) as client, client.consume("t") as consumer:
            async for message in consumer:
                found.append((message.key, message.attempt))
                await message.ack()
                if len(found) == COUNT - 1:
                    with Client(site.url) as other:
                        await asyncio.to_thread(check_dead, other)
                    return found
        return found

    assert asyncio.run(run()) == READABLE


@pytest.mark.usefixtures("unmended")
def test_a_batch_consumer_nacks_a_row_that_it_cannot_read_and_goes_on(site: Site) -> None:
    found = []
    with Client(site.url) as client, client.consume_batches("t", max_messages=COUNT) as consumer:
        for batch in consumer:
            rows = batch.batch.to_pylist()
            found += [(row["key"], row["attempts"]) for row in rows]
            batch.ack()  # of the whole of what was handed over, and of nothing beside it
            if len(found) == COUNT - 1:
                break
        check_dead(client)
    assert found == READABLE


@pytest.mark.usefixtures("unmended")
def test_the_command_nacks_a_row_that_it_cannot_read_and_goes_on(site: Site) -> None:
    words = ["consume", "t", "--max", str(COUNT - 1), "--url", site.url, "--json"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    assert [json.loads(line)["key"] for line in told.output.splitlines()] == [
        key for key, _ in READABLE
    ]


@pytest.mark.usefixtures("unmended")
def test_who_acks_before_reading_is_told_of_the_row_when_reading(site: Site) -> None:
    """Nobody can nack any more; the rows beside it are read as ever."""
    found: list[str | None] = []
    with Client(site.url) as client, client.consume("t", auto_ack=True) as consumer:
        for message in consumer:
            try:
                found.append(message.key)
            except BadRequest as wrong:
                assert str(wrong) == REASON
                with pytest.raises(BadRequest, match="headers of the message"):
                    _ = message.headers
                found.append(None)
            if len(found) == COUNT:
                break
    assert found == [None if row == BAD_ROW else str(row) for row in range(COUNT)]


@pytest.mark.parametrize("mends", [True, False], ids=["mended", "unmended"])
def test_who_looks_gets_all_rows(site: Site, mends: bool, request: pytest.FixtureRequest) -> None:
    if not mends:
        request.getfixturevalue("unmended")
    with Client(site.url) as client:
        assert keys_of(client.peek("t", limit=9).to_pylist()) == EXPECTED
    transport = FlightTransport(site.url)
    found = transport.scan({"topic": "t", "partition": 0})
    assert keys_of([row for batch in found for row in batch.to_pylist()]) == EXPECTED
    transport.close()


def test_a_batch_consumer_gets_all_rows(site: Site) -> None:
    with Client(site.url) as client, client.consume_batches("t", max_messages=COUNT) as consumer:
        batch = next(iter(consumer))
        assert keys_of(batch.batch.to_pylist()) == EXPECTED
        batch.ack()


def test_the_http_api_shows_and_leases_all_rows(site: Site) -> None:
    with httpx.Client(base_url=site.http, timeout=PATIENCE_SECONDS) as http:
        peeked = http.get("/v1/topics/t/messages").json()["messages"]
        assert keys_of(peeked) == EXPECTED
        leased = http.post("/v1/topics/t/lease", json={"max": 9}).json()["messages"]
        assert keys_of(leased) == EXPECTED
        mine = [{"id": one["id"], "attempt": one["attempt"]} for one in leased]
        acked = http.post("/v1/topics/t/ack", json={"messages": mine})
        assert acked.status_code == 200
        assert http.get("/v1/topics/t/stats").json()["leased"] == 0


def test_doqs_api_hands_out_all_rows(site: Site) -> None:
    with httpx.Client(base_url=site.http, timeout=PATIENCE_SECONDS) as http:
        found = []
        for _ in range(COUNT):
            answered = http.get("/API/v1/queues/t/messages", params={"ack": "true"})
            assert answered.status_code == 200, answered.text
            found.append((answered.json()["content"], answered.json()["metadata"]))
    assert found == [(str(row), {"name": key}) for row, key in enumerate(EXPECTED)]


def test_the_history_can_be_read(site: Site) -> None:
    rows: list[dict[str, Any]] = []
    for file in site.broker.call("history_files", {"name": "t"})["files"]:
        named = {"topic": "t", "partition": file["partition"], "file": file["name"]}
        for batch in site.broker.read("history", named)[1]:
            rows += batch.to_pylist()
    assert sorted(row["key"] for row in rows if row["change"] == "enqueued") == sorted(EXPECTED)


def test_the_mended_text_is_no_key(site: Site) -> None:
    """The bytes are the key still: nobody takes the message by the text that is shown."""
    with Client(site.url) as client:
        client.send("t", b"another", key=MENDED, delay=60)
        assert len(client.peek("t", limit=99)) == COUNT + 1
