"""Covers: one broker of a cluster takes the cuts of the archive, another one when it has left or
has died, and nobody while the coordinator is away.

Not covered: what they do with it (tests/cluster/test_archive.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.cluster import cuts_lead
from dejaqueue.cluster.cuts_lead import KEY, LOOK_US, TTL_MS, CutsLead
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.cluster.brokers import Away
from tests.patience import until


@pytest.fixture
def facts() -> Iterator[ProcessFacts]:
    made = ProcessFacts()
    yield made
    made.close()


def test_one_has_it__and_another_one_when_that_has_left(facts: ProcessFacts) -> None:
    clock = VirtualClock()
    one, other = (CutsLead(name, facts.open(), clock) for name in ("a", "b"))
    assert (one.has(), other.has()) == (True, False)
    clock.advance(us=LOOK_US)
    assert (one.has(), other.has()) == (True, False)
    one.leave()
    one.leave()
    assert not one.has()
    clock.advance(us=LOOK_US)
    assert (other.has(), one.has()) == (True, False)


def test_a_later_life_of_the_same_broker_is_another_one(facts: ProcessFacts) -> None:
    clock = VirtualClock()
    before, after = (CutsLead("a", facts.open(), clock) for _ in range(2))
    assert (before.has(), after.has()) == (True, False)
    after.leave()  # it has nothing to give
    clock.advance(us=LOOK_US)
    assert before.has()


def test_who_died_has_it_for_a_while(facts: ProcessFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TTL_MS > 2 * LOOK_US / 1_000
    monkeypatch.setattr(cuts_lead, "TTL_MS", 600)
    monkeypatch.setattr(cuts_lead, "LOOK_US", 0)
    clock = VirtualClock()
    dead, other = (CutsLead(name, facts.open(), clock) for name in ("a", "b"))
    assert (dead.has(), other.has()) == (True, False)
    until(other.has, "its fact has vanished")
    assert not dead.has()


def test_nobody_has_it_while_the_coordinator_is_away(facts: ProcessFacts) -> None:
    clock, away = VirtualClock(), Away(facts.open())
    one = CutsLead("a", away, clock)
    assert one.has()
    away.is_away = True
    assert one.has()  # as of a second ago
    clock.advance(us=LOOK_US)
    assert not one.has()
    away.is_away = False
    clock.advance(us=LOOK_US)
    assert one.has()
    assert facts.open().get(KEY) is not None
