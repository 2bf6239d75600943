"""A slice of what simulated nodes do about servers beside them, and proof that it finds faults.

Covered: the turn, the list of servers, a server that its disk has stopped. Not covered: the servers
themselves, and what moves their copies (tests/cluster, over real ones).
"""

from __future__ import annotations

import pytest

from tests.simulation.cluster.beside import simulate_servers
from tests.simulation.planted import SERVERS

FOUND_BY = SERVERS.found_by()
KEPT = (38, 85, 94)
"""Seeds in which two nodes had the turn at once."""


@pytest.mark.parametrize("seed", [*range(1, 6), *KEPT])
def test_no_promise_about_servers_is_broken(seed: int) -> None:
    run = simulate_servers(seed)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


def test_a_seed_does_the_same_twice() -> None:
    assert simulate_servers(9).fingerprint == simulate_servers(9).fingerprint


@pytest.mark.parametrize("name", sorted(SERVERS.mutants))
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SERVERS.seed_that_finds(name, monkeypatch) is not None, f"nobody noticed: {name}"


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(SERVERS.mutants)
