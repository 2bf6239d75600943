"""Three mixtures for a few seconds: the program works, and what the seeds say still meets.

Covered: a broker alone, processes, and brokers of a cluster, encrypted and archived; an accident or
two.
Not covered: long ones, and many seeds (`make mixture`).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dev.services import missing
from tests.mixture.__main__ import Mixture
from tests.mixture.plan import ACCIDENTS, ALONE, BROKERS, PROCESSES, Plan

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1_200)]

SECONDS = 6.0


def _seed_of(place: Path, where: str) -> int:
    """The first one whose broker is so, encrypted, and archived."""
    wanted = {"encryption__master_key", "backup__url", "payloads__url"}
    for seed in range(1_000):
        found = Plan.drawn(seed, place)
        if wanted <= found.settings.keys() and found.place == where:
            return seed
    raise AssertionError("no seed is so")


@pytest.mark.parametrize("where", [ALONE, PROCESSES, BROKERS])
def test_all_at_once_keeps_the_rules(tmp_path: Path, where: str) -> None:
    for name in ("postgresql", "etcd") if where == BROKERS else ():
        if lacking := missing(name):
            pytest.skip(f"not installed: {lacking}")
    (tmp_path / "drawn").mkdir()
    seed = _seed_of(tmp_path / "drawn", where)
    (tmp_path / "run").mkdir()
    random.seed(seed)
    assert Mixture(seed, tmp_path / "run").run(SECONDS) == []


def test_a_seed_says_all_of_it(tmp_path: Path) -> None:
    first, second = Plan.drawn(5, tmp_path), Plan.drawn(5, tmp_path)
    assert (first.settings, first.topics, first.foreign) == (
        second.settings,
        second.topics,
        second.foreign,
    )
    assert first.random.choice(ACCIDENTS) == second.random.choice(ACCIDENTS)
    assert Plan.drawn(6, tmp_path).topics != first.topics
