"""A slice of the simulated moves, and proof that they find what they are there to find.

Covered: planned hand-overs under consumers that come and go. Not covered: everything that breaks
(test_clients.py, test_cluster.py).
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.cluster.run_moves import simulate_moves
from tests.simulation.planted import MOVES

FOUND_BY = MOVES.found_by()
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"


def test_no_message_waits_for_a_lease_to_run_out() -> None:
    run = simulate_moves(2)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


@pytest.mark.may_skip
@pytest.mark.skipif(not ALL, reason="make reliability")
@pytest.mark.parametrize("name", sorted(MOVES.mutants))
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOVES.seed_that_finds(name, monkeypatch) is not None, f"nobody noticed: {name}"


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(MOVES.mutants)
