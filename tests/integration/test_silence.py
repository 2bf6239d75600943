"""A broker that hangs: what was sent to it goes to another one, or again when it is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client, silence_watch
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def server() -> Iterator[FlightServer]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    running = FlightServer(broker)
    running.start()
    yield running
    running.stop()
    broker.stop()


def test_a_send_does_not_wait_for_a_broker_that_says_nothing(
    server: FlightServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_SECONDS", "SILENT_SECONDS_MAX", "ANSWER_SECONDS_MAX"):
        monkeypatch.setattr(silence_watch, name, 0.3)
    with CuttingProxy(server.port) as first, CuttingProxy(server.port) as second:
        url = f"dejaq://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        with Client(url) as client:
            client.create_topic("t")
            before = client.send("t", "before")
            first.hang()
            sent = client.producer("t", linger_ms=0)
            answer = sent.send(b"during")
            assert client.send("t", "meanwhile") > before
            assert answer.result(PATIENCE_SECONDS) > before
            first.cut()
            sent.close()
            with client.consume("t", max_messages=3, auto_ack=True, idle_ms=5_000) as messages:
                got = sorted(message.payload for message in messages)
    assert got == [b"before", b"during", b"meanwhile"]
