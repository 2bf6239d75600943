"""Covers: a broker is what its standby's part takes it for.

Not covered: what that part does with it (test_standby.py).
"""

from __future__ import annotations

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.standby.ports import StandbyPort
from dejaqueue.settings import BrokerSettings, JournalSettings


def test_a_broker_is_such_a_port() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    try:
        wanted = {name for name in dir(StandbyPort) if not name.startswith("_")}
        wanted |= set(StandbyPort.__annotations__)
        assert {name for name in wanted if not hasattr(broker, name)} == set()
    finally:
        broker.stop()
