"""A broker, and each of the clients in a process of its own, by each way that it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.flight.server import FlightServer
from tests.clients.drivers import Driver
from tests.integration.access_fixture import Site, running

LANGUAGES = ("go", "java")
WAYS = (*LANGUAGES, "java-flight-only")
"""A language, and whether its client does without lanes."""


@pytest.fixture
def site() -> Iterator[Site]:
    """A broker without topics, by Flight and by HTTP, where its lanes are."""
    with running() as found:
        yield found


@pytest.fixture
def server(site: Site) -> FlightServer:
    """The broker by Flight."""
    return site.flight


@pytest.fixture
def ours(server: FlightServer) -> Iterator[Client]:
    """Our own client of the same broker: what the other one did is looked at by it."""
    with Client(server.url) as client:
        yield client


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def alone(way: str, server: FlightServer, tmp_path: Path) -> Iterator[Driver]:
    """The client, not connected. It ends before the broker does."""
    driver = Driver(way, tmp_path / "client.log")
    yield driver
    driver.end()


@pytest.fixture
def client(alone: Driver, server: FlightServer) -> Driver:
    """The client, connected to the broker, which has the topic `t`."""
    alone.call("connect", url=server.url)
    alone.call("create_topic", topic="t")
    return alone
