"""A slice of the simulated cluster, and proof that it finds what it is there to find."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.simulation.cluster.plan import PLAIN, choose_plan
from tests.simulation.cluster.run import simulate_cluster
from tests.simulation.planted import CLUSTER

FOUND_BY = CLUSTER.found_by()
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
SLICE = sorted(FOUND_BY)[::3]
KEPT = (28, 47, 1041, 5065, 100_148, 100_390, 800_208)
"""Seeds that found something; docs/reliability.md says what. There were no plans then."""
KEPT_IN_HASTE = (100_267, 100_310, 500_552, 500_646, 720_092, 720_160)
"""The same, four times as short, with their plans. No faults were aimed then."""


BY_COORDINATOR = {
    "zookeeper": 8_000_002,
    "jetstream": 8_000_003,
    "redis": 8_000_005,
    "sqlite": 8_000_011,
    "parent": 8_000_013,
    "etcd": 8_000_014,
}
"""A seed of each that brokers agree by, four times as short."""


@pytest.mark.parametrize("seed", [1, 2])
def test_no_rule_is_broken(seed: int) -> None:
    run = simulate_cluster(seed)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


@pytest.mark.parametrize("name", BY_COORDINATOR)
def test_no_rule_is_broken__whatever_brokers_agree_by(name: str) -> None:
    seed = BY_COORDINATOR[name]
    assert choose_plan(seed, haste=4).coordinator == name
    run = simulate_cluster(seed, haste=4)
    assert [str(fault) for fault in run.faults] == []
    assert run.happened


@pytest.mark.parametrize("seed", KEPT)
def test_no_rule_is_broken__by_what_once_broke_one(seed: int) -> None:
    run = simulate_cluster(seed, plan=PLAIN)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


@pytest.mark.parametrize("seed", KEPT_IN_HASTE)
def test_no_rule_is_broken__by_what_once_broke_one_in_haste(seed: int) -> None:
    run = simulate_cluster(seed, plan=replace(choose_plan(seed, haste=4), aims=False))
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


def test_a_seed_does_the_same_twice() -> None:
    for seed in (7, *BY_COORDINATOR.values()):
        first, second = (simulate_cluster(seed, haste=8).fingerprint for _ in range(2))
        assert first == second
    assert simulate_cluster(8, haste=8).fingerprint != first


@pytest.mark.parametrize("name", sorted(CLUSTER.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CLUSTER.seed_that_finds(name, monkeypatch) is not None, CLUSTER.missed(name)


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(CLUSTER.mutants)
