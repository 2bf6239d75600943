"""A broker, and each of the clients in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.clients.drivers import Driver

LANGUAGES = ("go", "java")


@pytest.fixture
def server() -> Iterator[FlightServer]:
    """A broker without topics."""
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    serving = FlightServer(broker)
    serving.start()
    yield serving
    serving.stop()
    broker.stop()


@pytest.fixture
def ours(server: FlightServer) -> Iterator[Client]:
    """Our own client of the same broker: what the other one did is looked at by it."""
    with Client(server.url) as client:
        yield client


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def alone(language: str, server: FlightServer, tmp_path: Path) -> Iterator[Driver]:
    """The client, not connected. It ends before the broker does."""
    driver = Driver(language, tmp_path / "client.log")
    yield driver
    driver.end()


@pytest.fixture
def client(alone: Driver, server: FlightServer) -> Driver:
    """The client, connected to the broker, which has the topic `t`."""
    alone.call("connect", url=server.url)
    alone.call("create_topic", topic="t")
    return alone
