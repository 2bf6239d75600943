"""Covers: a message whose lease ended goes back to where it was, unless somebody had it since."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from dejaqueue.broker.doq import lapses as module
from dejaqueue.broker.doq import messages as doq
from dejaqueue.broker.doq.lapses import Lapses
from tests.rules.broker_fixture import TOPIC, BrokerFixture

LEASE_MS = 30_000
LONG_AGO_MS = 200_000_000_000


@pytest.fixture
def broker() -> Iterator[BrokerFixture]:
    fixture = BrokerFixture(lease_ms=LEASE_MS)
    fixture.send([b"a"], dues_ms=[LONG_AGO_MS])
    yield fixture
    fixture.stop()


def on_worker(broker: BrokerFixture, work: Any) -> Any:
    return broker.broker.runtime(TOPIC).change(0, work).result(10)


def taken(broker: BrokerFixture, lapses: Lapses) -> Any:
    push = on_worker(broker, partial(doq.take, lapses=lapses, done=False))
    leased = push.leased
    lapses.note(leased.lease_end_ms, int(leased.sequences[0]), int(leased.dues_ms[0]))
    return leased


def dues(broker: BrokerFixture) -> list[int]:
    return [int(row["due"]) for row in broker.peek()]


def test_it_goes_back_when_its_lease_has_ended(broker: BrokerFixture) -> None:
    lapses = Lapses()
    end_ms = taken(broker, lapses).lease_end_ms
    on_worker(broker, lapses.bring_back)
    assert dues(broker) == [end_ms]  # it is leased still
    broker.advance(LEASE_MS + 1)
    on_worker(broker, lapses.bring_back)
    assert dues(broker) == [LONG_AGO_MS]


def test_a_lease_that_was_extended_is_looked_at_again_at_its_new_end(broker: BrokerFixture) -> None:
    lapses = Lapses()
    sequence = int(taken(broker, lapses).sequences[0])
    broker.advance(LEASE_MS - 1)
    name = doq.Name(sequence, ())
    on_worker(broker, partial(doq.touch, name=name))
    broker.advance(LEASE_MS - 1)
    on_worker(broker, lapses.bring_back)
    assert dues(broker) != [LONG_AGO_MS]
    broker.advance(2)
    on_worker(broker, lapses.bring_back)
    assert dues(broker) == [LONG_AGO_MS]


def test_what_somebody_moved_since_stays_there(broker: BrokerFixture) -> None:
    lapses = Lapses()
    leased = taken(broker, lapses)
    broker.advance(LEASE_MS + 1)
    there_ms = broker.now_ms + 5_000
    broker.move([int(leased.sequences[0])], [there_ms])
    on_worker(broker, lapses.bring_back)
    assert dues(broker) == [there_ms]


def test_no_more_is_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 2)
    lapses = Lapses()
    for sequence in range(5):
        lapses.note(10, sequence, 1)
    assert len(lapses._take(10)) == 2
