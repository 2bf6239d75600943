"""A slice of what simulated nodes do about servers beside them, and proof that it finds faults.

Covered: the turn, the list of servers, servers that are started again, repaired, join and leave.
Not covered: real servers (tests/cluster), and nodes with TLS (tests/cluster/test_jetstream_tls.py).
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.cluster.beside import simulate_servers
from tests.simulation.planted import SERVERS

FOUND_BY = SERVERS.found_by()
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
SLICE = sorted(FOUND_BY, key=lambda name: FOUND_BY[name])[::3]


@pytest.mark.parametrize("seed", range(1, 9))
def test_no_promise_about_servers_is_broken(seed: int) -> None:
    run = simulate_servers(seed)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


def test_a_seed_does_the_same_twice() -> None:
    assert simulate_servers(9).fingerprint == simulate_servers(9).fingerprint


@pytest.mark.parametrize("name", sorted(SERVERS.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SERVERS.seed_that_finds(name, monkeypatch) is not None, SERVERS.missed(name)


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(SERVERS.mutants)
