"""Servers that keep journals, for tests of erasure: each a real one, and what it has of a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.journal.registry import open_records
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.crash.test_erasure_kill import far_ms, files_with
from tests.patience import until
from tests.record_servers import NatsServers, RedisServer, redis_program
from tests.server_fixtures import served

PARTITIONS = [("orders", 0), ("orders", 1), ("letters", 0), ("orders.dead", 0), ("orders.dead", 1)]
KINDS = [
    "redis",
    "sqlite",
    "jetstream",
    "jetstream-3",
    "postgresql",
    "mariadb",
    # Where Maven's repository cannot be reached there is no Cassandra.
    pytest.param("cassandra", marks=pytest.mark.may_skip),
]
"""Of CockroachDB there is none to start here (dev/services)."""


def server_url(kind: str, directory: Path) -> Iterator[str]:
    """A server of this kind, for a fixture to yield from."""
    directory.mkdir()
    if kind == "sqlite":
        yield f"sqlite:///{directory}/records.db"
    elif kind == "redis":
        redis = RedisServer(redis_program(), directory)
        yield redis.url
        redis.kill()
    elif kind.startswith("jetstream"):
        pytest.importorskip("nats")
        servers = NatsServers(directory, 3 if kind == "jetstream-3" else 1)
        yield servers.url
        servers.stop()
    else:
        if kind == "cassandra":
            pytest.importorskip("cassandra")
        yield from (service.url for service in served(kind))


def opened(url: str, mirror: Path, erase_ms_max: int = 0) -> dejaqueue.Client:
    """A broker in this process, with its client."""
    journal = JournalSettings(
        url=url, mirror=str(mirror), snapshot_entries=40, erase_ms_max=erase_ms_max
    )
    return dejaqueue.open("", settings=BrokerSettings(journal=journal))


def on_the_server(url: str, text: str) -> list[str]:
    """Records and objects of the server that have it; files of SQLite, which one process has."""
    if url.startswith("sqlite:"):
        return files_with(text, Path(url.removeprefix("sqlite://")).parent)
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


def wait_for_copies(url: str, text: str) -> None:
    """Return when no replica of the server gives a record that has it, asked each by itself."""
    records = open_records(url)

    def given() -> list[str]:
        found = []
        for name, partition in PARTITIONS:
            log = records.open(name, partition)
            # Of a stream that is empty a replica gives no answer.
            for replica in log.replicas() if any(log.read(1, log.last() + 1)) else ():
                for number, content in log.read_from(replica, 1, log.last() + 1):
                    if text.encode() in content:
                        found.append(f"{name} {number} of {replica}")
        return found

    try:
        until(lambda: not given(), f"no replica has {text}")
    finally:
        records.close()


def send_kept(client: dejaqueue.Client, first: int, end: int) -> None:
    """Messages that stay."""
    for number in range(first, end):
        client.send("orders", b"kept %d" % number, due=far_ms())


def check_kept(client: dejaqueue.Client, count: int) -> None:
    """All of them are delivered, and nothing else."""
    assert client.move_where("orders", due=0) == count
    with client.consume("orders", max_messages=count, idle_ms=20_000) as messages:
        got = sorted(message.payload for message in messages if message.ack() is None)
    assert got == sorted(b"kept %d" % number for number in range(count))
