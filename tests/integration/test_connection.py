"""Covers: a client of a real server says when its connection is cut, and when it is there again.

Not covered: what is sent again meanwhile (test_silence.py, tests/crash).
"""

from __future__ import annotations

import threading

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client, ConnectionChange
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.patience import PATIENCE_SECONDS


def test_a_cut_connection_is_lost_and_found() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    changes: list[ConnectionChange] = []
    lost, found = threading.Event(), threading.Event()

    def changed(change: ConnectionChange) -> None:
        changes.append(change)
        (found if change.is_connected else lost).set()

    try:
        with (
            CuttingProxy(server.port) as proxy,
            Client(f"dejaq://127.0.0.1:{proxy.port}", on_connection=changed) as client,
        ):
            client.create_topic("t")
            client.send("t", b"before")
            with client.consume("t") as messages:
                assert next(messages).ack(wait=True).name == "OK"
                assert changes == []
                proxy.cut()
                assert lost.wait(PATIENCE_SECONDS)
                assert not found.is_set()
                proxy.mend()
                client.send("t", b"after")
                assert next(messages).payload == b"after"
                assert found.wait(PATIENCE_SECONDS)
    finally:
        server.stop()
        broker.stop()
    assert [change.is_connected for change in changes[:2]] == [False, True]
    assert changes[0].reason
    assert changes[0].topic == "t"
