"""Readiness: the process around the broker counts, too."""

from __future__ import annotations

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.readiness import readiness
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, JournalSettings


def test_broker_that_runs_behind_servers_that_do_not_yet() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    serving = False
    service = Service(broker, Gate(), lambda: serving)
    assert readiness(service).reasons == ("not started",)
    broker.start()
    assert readiness(service).reasons == ("the servers are starting or stopping",)
    serving = True
    assert readiness(service).is_ready
    broker.stop()
    assert readiness(service).reasons == ("stopped",)
