"""A consumer of a topic that is deleted is told so; it does not wait for ever.

Not covered here: what happens to the messages (tests/cli).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import dejaqueue
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(params=["flight", "in process"])
def client(request: pytest.FixtureRequest) -> Iterator[dejaqueue.Client]:
    if request.param == "in process":
        with dejaqueue.open("memory:") as queue:
            yield queue
        return
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    with dejaqueue.Client(server.url) as queue:
        yield queue
    server.stop()
    broker.stop()


def test_a_consumer_is_told_that_its_topic_was_deleted(client: dejaqueue.Client) -> None:
    client.create_topic("t")
    client.send("t", b"a")
    first, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            for message in client.consume("t"):
                message.ack()
                first.set()
        except TopicUnknown as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    assert first.wait(PATIENCE_SECONDS)
    client.delete_topic("t")
    assert ended.wait(PATIENCE_SECONDS)
    assert [str(error) for error in errors] == ["topic: the name of an existing topic, got: 't'"]
    thread.join(PATIENCE_SECONDS)
