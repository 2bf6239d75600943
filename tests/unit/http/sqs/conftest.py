"""A real server over a broker on a virtual clock, and SQS's operations on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.setting_groups import SqsSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock


class Sqs:
    """SQS's operations at a server."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.base_url, timeout=30, trust_env=False)

    def ask(self, name: str, **values: Any) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        headers = {"x-amz-target": f"AmazonSQS.{name}"}
        answer = self.http.post("/sqs", json=values, headers=headers)
        return answer.status_code, answer.json()

    def do(self, name: str, **values: Any) -> Any:
        """JSON of an answer that is 200."""
        status, answer = self.ask(name, **values)
        assert status == 200, answer
        return answer

    def refused(self, name: str, **values: Any) -> str:
        """The name of the error that an operation ends with, and its text."""
        status, answer = self.ask(name, **values)
        assert status >= 400, answer
        return f"{answer['__type'].partition('#')[2]} {answer['message']}"

    def queue(self, name: str, **attributes: str) -> str:
        """The address of a new queue."""
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        url: str = self.do("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def send(self, url: str, body: str, **more: Any) -> Any:
        """What a message's sender gets."""
        return self.do("SendMessage", QueueUrl=url, MessageBody=body, **more)

    def take(self, url: str, count: int = 10, **more: Any) -> list[Any]:
        """Messages that are there."""
        found: list[Any] = self.do(
            "ReceiveMessage",
            QueueUrl=url,
            MaxNumberOfMessages=count,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
            **more,
        ).get("Messages", [])
        return found

    def bodies(self, url: str, count: int = 10, **more: Any) -> list[str]:
        """The bodies of messages that are there."""
        return [message["Body"] for message in self.take(url, count, **more)]

    def delete(self, url: str, message: Any) -> None:
        """Delete a message that was received."""
        self.do("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def shown(self, url: str, *names: str) -> Any:
        """Attributes of a queue."""
        wanted = list(names) or ["All"]
        return self.do("GetQueueAttributes", QueueUrl=url, AttributeNames=wanted).get("Attributes")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[Broker]:
    settings = BrokerSettings(journal=JournalSettings(url="memory:"), sqs=SqsSettings(enabled=True))
    broker = Broker(settings, clock)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def gate(broker: Broker) -> Gate:
    return Gate(broker.keys)


@pytest.fixture
def sqs(broker: Broker, gate: Gate) -> Iterator[Sqs]:
    server = HttpServer(Service(broker, gate, lambda: True), "127.0.0.1", 0)
    server.start()
    sqs = Sqs(server.port)
    yield sqs
    sqs.http.close()
    server.stop()
