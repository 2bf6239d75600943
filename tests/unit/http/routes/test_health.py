"""/livez, /readyz and /stats: what probes get, and why not.

Not covered: which faults are noticed (tests/unit/broker/watching/test_health.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.access.roles import Grant, Principal, Role
from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.errors import Unauthenticated, Unavailable
from dejaqueue.http.app import build_app
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem(FileSystem())


@pytest.fixture
def broker(files: FaultyFileSystem, tmp_path: Path) -> Iterator[Broker]:
    store = SegmentStore(tmp_path, segment_bytes=1 << 20, reserve_bytes=1 << 20, file_system=files)
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), store=store)
    yield made
    made.stop()


class OneGate(Gate):
    """Lets everybody in as one and the same."""

    def __init__(self, role: Role, pattern: str) -> None:
        super().__init__()
        self._principal = Principal("somebody", (Grant(role, pattern),))

    def principal(self, api_key: str | None, certificate: str = "") -> Principal:
        return self._principal


class NoGate(Gate):
    """Lets nobody in."""

    def principal(self, api_key: str | None, certificate: str = "") -> Principal:
        raise Unauthenticated("no key")


def get(broker: Broker, path: str, gate: Gate | None = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(build_app(Service(broker, gate or Gate(), lambda: True)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_alive_before_it_is_ready(broker: Broker) -> None:
    assert get(broker, "/livez").json() == {"status": "alive"}
    not_ready = get(broker, "/readyz")
    assert not_ready.status_code == 503
    assert not_ready.headers["cache-control"] == "no-store"
    assert not_ready.json() == {"status": "not ready", "reasons": ["not started"]}
    broker.start()
    ready = get(broker, "/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


def test_failed_disk_ends_readiness_and_says_so(broker: Broker, files: FaultyFileSystem) -> None:
    broker.start()
    broker.create_topic(Topic("a"))
    with Client(transport=LocalTransport(broker), retry_ms_max=0) as client:
        client.send("a", b"1")
        files.fail("sync")
        with pytest.raises(Unavailable):
            client.send("a", b"2")
    found = get(broker, "/readyz")
    assert found.status_code == 503
    assert found.json()["reasons"] == ["partitions that failed: 1; start the broker anew"]
    assert found.json()["details"][0].startswith("topic a, partition 0: ")
    stranger = get(broker, "/readyz", OneGate(Role.MANAGE, "a"))
    assert stranger.json() == {"status": "not ready", "reasons": found.json()["reasons"]}
    assert get(broker, "/readyz", NoGate()).json() == stranger.json()
    assert get(broker, "/livez").status_code == 200
    metrics = get(broker, "/metrics").text
    assert "dejaq_ready_state 0\n" in metrics
    assert "dejaq_partitions_total" not in metrics
    assert 'dejaq_partitions{topic="a",kind="timeline",state="failed"} 1' in metrics


def test_full_disk_is_told_and_nothing_more(broker: Broker, files: FaultyFileSystem) -> None:
    broker.start()
    broker.create_topic(Topic("a"))
    with Client(transport=LocalTransport(broker), retry_ms_max=0) as client:
        client.send("a", b"1")
    files.free = 0
    found = get(broker, "/readyz")
    assert found.status_code == 200
    assert "disk is full" in found.json()["warnings"][0]


def test_stats_are_those_of_the_broker(broker: Broker) -> None:
    broker.start()
    broker.create_topic(Topic("a"))
    assert set(get(broker, "/stats").json()["topics"]) == {"a"}


def test_probes_may_ask_with_head(broker: Broker) -> None:
    server = HttpServer(Service(broker, Gate(), lambda: False), "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        assert client.head("/livez").status_code == 200
        assert client.head("/readyz").status_code == 503
    server.stop()
