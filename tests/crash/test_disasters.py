"""Covers: a disaster from the beginning to what is restored: kills, an older copy that is put in
place, a wrong key, restores that are killed.

Not covered: many of them (`python -m tests.crash.disasters`); each part by itself
(tests/integration/test_archive.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.disasters import Disaster, Plan, Store

SEEDS = [2, 4]
"""An older copy and a flipped bit; a bucket that was away, encrypted, a wrong key first."""


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    found = Store()
    yield found
    found.stop()


def test_plans_have_everything_that_can_happen() -> None:
    plans = [Plan(seed) for seed in range(1, 60)]
    assert {plan.loss for plan in plans} == {"deleted", "older copy"}
    assert {plan.damage for plan in plans} == {"none", "flipped", "short", "missing"}
    assert any(plan.goes_away and plan.is_encrypted for plan in plans)
    assert any(plan.restores_killed for plan in plans)
    assert Plan(7) == Plan(7)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_archived_is_restored(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name, value in store.s3.environment.items():
        monkeypatch.setenv(name, value)
    disaster = Disaster(Plan(seed), store, tmp_path)
    disaster.run()
    assert disaster.lag_ms < 60_000
