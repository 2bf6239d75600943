"""A slice of the simulated clients, and proof that they find what they are there to find.

Covered: the client library over a simulated cluster. Not covered: Flight itself, and the broker's
end of it (tests/integration, tests/hostile).
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.cluster.run_clients import simulate_clients
from tests.simulation.planted import CLIENTS

FOUND_BY = CLIENTS.found_by()
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
SLICE = sorted(FOUND_BY)[::4]


IN_SHARDS = [(11_000_002, 1), (11_000_003, 2)]
GAVE_BACK_FOR_A_MINUTE = [(11_000_004, 2), (11_000_007, 2)]


@pytest.mark.parametrize(("seed", "haste"), [(17, 1), (18, 1), *IN_SHARDS, *GAVE_BACK_FOR_A_MINUTE])
def test_no_rule_is_broken(seed: int, haste: int) -> None:
    run = simulate_clients(seed, haste)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


def test_a_seed_does_the_same_twice() -> None:
    assert simulate_clients(3).fingerprint == simulate_clients(3).fingerprint


@pytest.mark.parametrize("name", sorted(CLIENTS.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CLIENTS.seed_that_finds(name, monkeypatch) is not None, CLIENTS.missed(name)


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(CLIENTS.mutants)
