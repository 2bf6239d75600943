"""Covers: a stored row whose texts are not UTF-8, from every side (rule 15).

Twice: as the broker hands it out now, and as one hands it out that does not mend it, which is for
our clients to bear. Not covered: what the partition does with such rows (tests/rules).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

import dejaqueue
from dejaqueue import Client
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import BadRequest
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.schema.checks import SendColumns
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

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
    assert replied.result(20).error is None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url=str(tmp_path / "data"))))
    broker.start()
    broker.create_topic(Topic("t", history=True))
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
        "dejaqueue.broker.reading.read_stored", lambda journal, *rest: journal.read(*rest)
    )
    monkeypatch.setattr(
        "dejaqueue.broker.scan.read_stored", lambda journal, *rest: journal.read(*rest)
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


@pytest.mark.usefixtures("unmended")
def test_a_consumer_gets_an_error_of_that_row_alone(site: Site) -> None:
    found: list[str | None] = []
    with Client(site.url) as client:
        with client.consume("t") as consumer:
            for message in consumer:
                try:
                    found.append(message.key)
                    assert message.headers == {"name": message.key}
                    message.ack()
                except BadRequest as wrong:
                    assert "key of the message: text in UTF-8" in str(wrong)
                    with pytest.raises(BadRequest, match="headers of the message"):
                        _ = message.headers
                    found.append(None)
                    message.nack(reason=str(wrong), dead=True)
                if len(found) == COUNT:
                    break
        assert found == [None if row == BAD_ROW else str(row) for row in range(COUNT)]
        dead = client.stats("t")
        assert (dead["ready"], dead["leased"]) == (0, 0)


@pytest.mark.usefixtures("unmended")
def test_an_async_consumer_gets_an_error_of_that_row_alone(site: Site) -> None:
    async def run() -> list[str | None]:
        found: list[str | None] = []
        async with dejaqueue.AsyncClient(site.url) as client, client.consume("t") as consumer:
            async for message in consumer:
                try:
                    found.append(message.key)
                except BadRequest:
                    found.append(None)
                await message.ack()
                if len(found) == COUNT:
                    return found
        return found

    assert asyncio.run(run()) == [None if row == BAD_ROW else str(row) for row in range(COUNT)]


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
    with httpx.Client(base_url=site.http, timeout=20) as http:
        peeked = http.get("/v1/topics/t/messages").json()["messages"]
        assert keys_of(peeked) == EXPECTED
        leased = http.post("/v1/topics/t/lease", json={"max": 9}).json()["messages"]
        assert keys_of(leased) == EXPECTED
        mine = [{"id": one["id"], "attempt": one["attempt"]} for one in leased]
        acked = http.post("/v1/topics/t/ack", json={"messages": mine})
        assert acked.status_code == 200
        assert http.get("/v1/topics/t/stats").json()["leased"] == 0


def test_the_history_can_be_read(site: Site) -> None:
    rows: list[dict[str, Any]] = []
    for file in site.broker.history_files({"name": "t"})["files"]:
        named = {"topic": "t", "partition": file["partition"], "file": file["name"]}
        for batch in site.broker.read_history(named)[1]:
            rows += batch.to_pylist()
    assert sorted(row["key"] for row in rows if row["change"] == "enqueued") == sorted(EXPECTED)


def test_the_mended_text_is_no_key(site: Site) -> None:
    """The bytes are the key still: nobody takes the message by the text that is shown."""
    with Client(site.url) as client:
        client.send("t", b"another", key=MENDED, delay=60)
        assert len(client.peek("t", limit=99)) == COUNT + 1
