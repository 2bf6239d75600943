"""A broker behind HTTP, on a port of its own, and a client that shows answers as values.

Not covered here: the command and the processes (tests/cli).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings


class Api:
    """The HTTP API of a broker, for tests."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.broker = broker
        self.port = port
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Status and JSON of an answer; None where it has no body."""
        answer = self.http.request(method, path, json=body, **more)
        return answer.status_code, answer.json() if answer.content else None

    def get(self, path: str, **parameters: Any) -> Any:
        """JSON of an answer that is 200."""
        status, values = self.ask("GET", path, params=parameters)
        assert status == 200, values
        return values

    def post(self, path: str, body: Any = None, *, status: int = 200, **more: Any) -> Any:
        """JSON of an answer that has this status."""
        found, values = self.ask("POST", path, body, **more)
        assert found == status, values
        return values

    def send(self, payload: str, **fields: Any) -> str:
        """Send a message to topic `t`; its id."""
        made = self.post("/v1/topics/t/messages", {"payload": payload, **fields}, status=201)
        return str(made["id"])

    def lease(self, **fields: Any) -> list[dict[str, Any]]:
        """Lease messages of topic `t`."""
        found: list[dict[str, Any]] = self.post("/v1/topics/t/lease", fields)["messages"]
        return found

    def settle(self, op: str, messages: list[dict[str, Any]], **fields: Any) -> list[str]:
        """Ack, nack or extend messages of topic `t`; the status of each."""
        named = [{"id": message["id"], "attempt": message["attempt"]} for message in messages]
        found = self.post(f"/v1/topics/t/{op}", {"messages": named, **fields})["messages"]
        assert [row["id"] for row in found] == [row["id"] for row in named]
        return [row["status"] for row in found]


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    yield broker
    broker.stop()


@pytest.fixture
def api(broker: Broker) -> Iterator[Api]:
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    api = Api(broker, server.port)
    yield api
    api.http.close()
    server.stop()
