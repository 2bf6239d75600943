"""A real server over a broker on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), clock)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def http(broker: Broker) -> Iterator[httpx.Client]:
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}/API/v1"
    with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
        yield client
    server.stop()
