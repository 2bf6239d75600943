"""A broker in memory, served on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.celery.choice import close_all
from dejaqueue.client import Client
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    yield server.url
    close_all()
    server.stop()
    broker.stop()


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, retry_ms_max=5_000) as made:
        yield made
