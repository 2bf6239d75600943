"""The server begins and ends when it is told to."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.conftest import Api


def test_it_stops_twice_and_gives_the_port_back(broker: Broker) -> None:
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}/livez"
    assert httpx.get(url, trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
    server.stop()
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False, timeout=PATIENCE_SECONDS)


def test_who_waits_when_it_stops_is_told_at_once(broker: Broker) -> None:
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    api = Api(broker, server.port)
    found: list[int] = []

    def wait() -> None:
        found.append(api.ask("POST", "/v1/topics/t/lease", {"wait_ms": 60_000})[0])

    waiting = threading.Thread(target=wait)
    waiting.start()

    def consumers() -> list[dict[str, Any]]:
        return list(broker.call("stats", {"topic": "t"})["consumers"])

    while not any(consumer["credit"] for consumer in consumers()):
        pass
    server.stop()
    waiting.join(10)
    api.http.close()
    assert found == [503]
