"""Covers: a small fleet, as `make sim KIND=fleet` has it in full: who owns what after deaths and
returns, and that neither rest nor a change has everybody read everything.

Not covered: how long it takes on processors; what is in the topics (the simulated cluster).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dejaqueue.coordinator.followed_facts import FollowedFacts
from tests.simulation.fleet.report import lines_of, weigh_catalogue
from tests.simulation.fleet.run import FleetRun, Phase, Size, simulate_fleet

SIZE = Size(brokers=7, slots=256, topics=200, partitions=3, rest_seconds=5, made=3, deaths=(1, 2))


@contextmanager
def silence() -> Iterator[None]:
    """What dies is meant to."""
    log = logging.getLogger("dejaqueue")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def simulated(seed: int, size: Size) -> FleetRun:
    with silence():
        return simulate_fleet(seed, size)


@pytest.fixture(scope="module")
def run() -> FleetRun:
    return simulated(1, SIZE)


def phase(run: FleetRun, name: str) -> Phase:
    return next(one for one in run.phases if one.name == name)


def test_each_slot_has_one_owner_that_is_there__who_serves_its_topics(run: FleetRun) -> None:
    assert run.faults == []
    assert [one.name for one in run.phases] == [
        *("start", "rest", "death of 1", "death of 2", "return", "3 topics are made")
    ]
    assert all(one.name in line for one, line in zip(run.phases, lines_of(run), strict=True))


def test_all_slots_are_claimed_soon_after_a_death(run: FleetRun) -> None:
    for name in ("death of 1", "death of 2"):
        assert 4.0 < phase(run, name).noticed_seconds < 6.0
        assert phase(run, name).claimed_seconds < 1.0


def test_nobody_reads_all_owners__at_rest_and_when_a_topic_is_made(run: FleetRun) -> None:
    for name in ("rest", "3 topics are made"):
        seen = phase(run, name)
        # Members and their clocks, each second or so; owners once in ten seconds at most.
        bound = SIZE.brokers * (4 * SIZE.brokers + 10 + SIZE.slots / 5)
        assert seen.traffic.facts / seen.seconds < bound


def test_that_is_seen__if_everybody_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = FollowedFacts.read

    def read(self: FollowedFacts[object]) -> object:
        self.doubt()
        return inner(self)

    monkeypatch.setattr(FollowedFacts, "read", read)
    with pytest.raises(AssertionError):
        test_nobody_reads_all_owners__at_rest_and_when_a_topic_is_made(simulated(1, SIZE))


def test_a_seed_does_the_same_twice() -> None:
    small = Size(brokers=3, slots=256, topics=20, rest_seconds=1, made=1, deaths=(1,))
    first, second = simulated(2, small), simulated(2, small)
    assert first.faults == []
    assert [_seen(one) for one in first.phases] == [_seen(one) for one in second.phases]


def _seen(one: Phase) -> object:
    return one.name, one.seconds, one.traffic, one.rounds, one.moved, one.claimed_seconds


def test_the_catalogue_is_weighed() -> None:
    weighed = weigh_catalogue(SIZE)
    assert (weighed.topics, weighed.partitions) == (200, 600)
    assert weighed.snapshot_bytes > 200 * 20
