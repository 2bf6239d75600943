"""A slice of the simulated API keys of a cluster, and proof that it finds what it should."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dejaqueue.access.api_keys import new_key
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.access.roles import Grant, Role
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.keys import BOUND_US, Key, KeyHistory, KeyPeople, simulate_keys
from tests.simulation.cluster.machines import Cluster
from tests.simulation.planted import KEYS

ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
FOUND_BY = KEYS.found_by()
SLICE = (
    "keys_are_read_changed_and_written",
    "keys_need_no_confirmation",
    "seals_are_not_looked_at",
)
KEPT = (1, 14, 22, 59)
"""Seeds that found something: a broker that had put back an old document was not corrected by who
knew better; what only one broker knew was lost with its process."""


@pytest.mark.parametrize("seed", [*range(2, 7), *KEPT])
def test_no_promise_about_keys_is_broken(seed: int) -> None:
    run = simulate_keys(seed)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


class Door:
    """What a key is tried at."""

    def __init__(self, keys: KeyRing) -> None:
        self.keys = keys


@pytest.mark.parametrize(
    ("forges", "knew_it", "faults"), [(False, False, 1), (True, True, 1), (True, False, 0)]
)
def test_a_key_may_be_unknown_where_a_forged_document_hides_it(
    forges: bool, knew_it: bool, faults: int
) -> None:
    """Until somebody who knows it is there again: who has no secret can stop a cluster.

    Seed 54 had a broker that came after a key was made, while its maker was dead.
    """
    world, history = World(1), KeyHistory()
    people = KeyPeople(world, Cluster(world, 2, 0.0), history, forges=forges)
    clock = SimulatedClock(world)
    key = Key("shop", new_key("shop", (Grant(Role.ADMIN, "*"),), 0, None)[1], world.now_us)
    broker: Any = Door(KeyRing(clock, InMemory()))
    broker.keys.create("root", ["admin:*"])
    if knew_it:
        key.known_to.add(broker)
    people._try_one(broker, key)
    assert history.faults == []
    world.run(world.now_us + BOUND_US + 1)
    people._try_one(broker, key)
    assert len(history.faults) == faults


def test_a_seed_does_the_same_twice() -> None:
    assert simulate_keys(9).fingerprint == simulate_keys(9).fingerprint


@pytest.mark.parametrize("name", sorted(KEYS.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KEYS.seed_that_finds(name, monkeypatch) is not None, KEYS.missed(name)


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(KEYS.mutants)
