"""The carrier: what goes wrong with a parcel is told, and stops no other.

Not covered: the whole way of a letter (tests/rules/test_rule_18_dead_letters.py), crashes
(tests/rules/test_rule_18_crashes.py).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.letters import carrier as module
from dejaqueue.broker.letters.carrier import Carrier
from dejaqueue.broker.letters.parcel import Parcel
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.journal.interface import Journal
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.unit.broker.parcels import Rows, parcel


@pytest.fixture
def broker() -> Any:
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), VirtualClock())
    made.start()
    yield made
    made.stop()


def carried(carrier: Carrier, one: Parcel, journal: Journal) -> tuple[int, DejaQError | None]:
    future: Future[tuple[int, DejaQError | None]] = Future()
    carrier.carry(one, journal, lambda rows, error: future.set_result((rows, error)))
    return future.result(10)


def test_what_goes_wrong_is_told_and_the_next_is_carried(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal: Any = Rows([b"a"])
    gone: Any = Rows([None])
    assert carried(broker.carrier, parcel(1), journal) == (1, None)
    assert broker.topic("t.dead").max_payload_bytes == limits.PAYLOAD_BYTES_MAX
    rows, error = carried(broker.carrier, parcel(1), gone)
    assert (rows, str(error)) == (0, "rows are being copied")
    rows, error = carried(broker.carrier, parcel(1, "no-such"), journal)
    assert (rows, "no-such" in str(error)) == (0, True)
    monkeypatch.setattr(module, "letter_columns", lambda *_: 1 / 0)
    rows, error = carried(broker.carrier, parcel(1), journal)
    assert isinstance(error, InternalError)


def test_a_closed_carrier_takes_nothing_and_says_nothing(broker: Broker) -> None:
    journal: Any = Rows([b"a"])
    carrier = Carrier(broker, ThreadPoolExecutor(1))
    carrier.close()
    answers: list[int] = []
    carrier.carry(parcel(1), journal, lambda rows, error: answers.append(rows))
    carrier.close()
    assert answers == []
