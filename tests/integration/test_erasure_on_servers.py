"""Erasure where journals are on a server: the server gives no record of it any more, and no file of
the copy beside the broker has a byte.

Here: Redis, SQLite, JetStream and PostgreSQL, each a real server, through the client's calls. Not
here: journals in segments (test_erasure.py); what a record log promises (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.journal.registry import open_records
from dejaqueue.model import RowStatus
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.crash.test_erasure_kill import far_ms, files_with
from tests.record_servers import NatsServers, RedisServer, redis_program
from tests.server_fixtures import served

KEPT = 60
PARTITIONS = [("orders", 0), ("orders", 1), ("letters", 0), ("orders.dead", 0), ("orders.dead", 1)]
KINDS = ["redis", "sqlite", "jetstream", "postgresql"]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    directory = tmp_path / "server"
    directory.mkdir()
    if request.param == "sqlite":
        yield f"sqlite:///{directory}/records.db"
    elif request.param == "redis":
        redis = RedisServer(redis_program(), directory)
        yield redis.url
        redis.kill()
    elif request.param == "jetstream":
        pytest.importorskip("nats")
        servers = NatsServers(directory)
        yield servers.url
        servers.stop()
    else:
        yield from (service.url for service in served(request.param))


def opened(url: str, tmp_path: Path) -> dejaqueue.Client:
    journal = JournalSettings(url=url, mirror=str(tmp_path / "mirror"), snapshot_entries=40)
    return dejaqueue.open("", settings=BrokerSettings(journal=journal))


def on_the_server(url: str, text: str) -> list[str]:
    """Records and objects of the server that have it."""
    found = []
    records = open_records(url)
    try:
        for name, partition in PARTITIONS:
            log = records.open(name, partition)
            for number, content in log.read(1, log.last() + 1):
                if text.encode() in content:
                    found.append(f"{name} {number}")
        names = records.object_names("")
        found += [one for one in names if text.encode() in (records.get_object(one) or b"")]
    finally:
        records.close()
    return found


def check_kept(client: dejaqueue.Client, topic: str, count: int) -> None:
    assert client.move_where(topic, due=0) == count
    with client.consume(topic, max_messages=count, idle_ms=20_000) as messages:
        got = sorted(message.payload for message in messages if message.ack() is None)
    assert got == sorted(b"kept %d" % number for number in range(count))


def send_kept(client: dejaqueue.Client, first: int, end: int) -> None:
    for number in range(first, end):
        client.send("orders", b"kept %d" % number, due=far_ms())


def test_the_server_has_no_record_of_what_was_erased__and_all_else_is_delivered(
    url: str, tmp_path: Path
) -> None:
    with opened(url, tmp_path) as client:
        client.create_topic("orders", max_attempts=1)
        client.create_topic("letters")
        send_kept(client, 0, 20)
        done = client.send("orders", "marker-done", key="marker-key", group="marker-group")
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                message.ack(wait=True)
        send_kept(client, 20, 40)
        client.send("orders", "marker-waits", key="marker-key", due=far_ms())
        cancelled = client.send("orders", "marker-cancelled", due=far_ms())
        client.cancel("orders", id=cancelled)
    may_look = not url.startswith("sqlite:")  # which one process has to itself
    with opened(url, tmp_path) as client:  # nothing of what is done is in memory any more
        send_kept(client, 40, KEPT)
        leased = client.send("orders", "marker-leased", tags=["marker-tag"])
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                if may_look:
                    names = on_the_server(url, "marker-")
                    assert any(name.startswith("orders ") for name in names)
                assert files_with("marker-", tmp_path / "mirror")
                erased = client.erase("orders", keys=["marker-key"])
                assert (erased.ended, erased.held) == (1, 0)
                assert erased.found >= 2
                assert client.erase("orders", ids=[done]).found == 0
                assert client.erase("orders", ids=[cancelled, leased]).ended == 1
                if may_look:
                    assert on_the_server(url, "marker-") == []
                assert files_with("marker-", tmp_path / "mirror") == []
                assert message.ack(wait=True) is RowStatus.LEASE_LOST
        check_kept(client, "orders", KEPT)
    with opened(url, tmp_path) as client:
        assert client.counts("orders")["scheduled"] == 0
    assert on_the_server(url, "marker-") == []
    assert files_with("marker-", tmp_path / "mirror") == []
