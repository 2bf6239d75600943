"""Two mixtures for a few seconds: the program works, and what the seeds say still meets.

Covered: encrypted processes with an archive, and a broker alone; one accident or two.
Not covered: long ones, and many seeds (`make mixture`).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.mixture.__main__ import Mixture
from tests.mixture.plan import ACCIDENTS, Plan

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1_200)]

SECONDS = 6.0


def _seed_of(place: Path, *, is_divided: bool) -> int:
    """The first one whose broker is so, encrypted, and archived."""
    wanted = {"encryption__master_key", "backup__url", "payloads__url"}
    for seed in range(1_000):
        found = Plan.drawn(seed, place).settings
        if wanted <= found.keys() and ("server__processes" in found) is is_divided:
            return seed
    raise AssertionError("no seed is so")


@pytest.mark.parametrize("is_divided", [False, True], ids=["alone", "processes"])
def test_all_at_once_keeps_the_rules(tmp_path: Path, *, is_divided: bool) -> None:
    (tmp_path / "drawn").mkdir()
    seed = _seed_of(tmp_path / "drawn", is_divided=is_divided)
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
