"""Covers: disasters from the beginning to what is back, of a few numbers; bugs that are planted and
have to be found.

Not covered: many of them (`python -m tests.disasters`, which `make reliability` runs); each part by
itself (tests/integration/test_archive.py, tests/crash/test_standby_kill.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.services import missing
from tests.disasters.disaster import Disaster
from tests.disasters.plan import KINDS, WAYS, Plan
from tests.disasters.planted import PLANTED, PLANTS
from tests.disasters.sites import Ground
from tests.disasters.store_proxy import Moment, Trouble

SEEDS = (4, 13, 21)
"""To an instant; a standby; a store whose answers are lost."""
QUIET: dict[str, Any] = {
    "trouble": Trouble.NONE,
    "damage": "none",
    "strike": "kill",
    "restarts": False,
    "backs_up": "",
    "settles": True,
    "kills": (),
    "target": "directory",
    "load_seconds": 0.2,
    "part": 0.2,
}
PLANTED_ROUNDS = 3
"""A busy machine may do nothing between the end of a piece and a kill."""
FINDING: dict[str, dict[str, Any]] = {
    "instants are later": {"way": "restore"},
    "the fence is not read": {"way": "standby"},
    "older copies go on": {"way": "older copy"},
    "a standby is promoted before it has read": {"way": "standby"},
}
"""In which round each planted bug shows itself."""


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    lacking = missing("versitygw")
    if lacking:
        pytest.skip(f"not installed: {lacking}")
    found = Ground()
    yield found
    found.close()


def test_plans_have_everything_that_can_happen() -> None:
    plans = [Plan.drawn(seed) for seed in range(1, 501)]
    rounds = [one for plan in plans for one in plan.rounds]
    assert {plan.kind for plan in plans} == {one.target for one in rounds} == set(KINDS)
    assert {one.way for one in rounds} == set(WAYS)
    assert {one.trouble for one in rounds} == set(Trouble)
    assert {one.damage for one in rounds} == {"none", "flipped", "short", "missing"}
    struck = [one for one in rounds if one.strike == "at a request"]
    assert {one.moment for one in struck} == set(Moment)
    assert {one.strike for one in rounds} == {"kill", "at a request", "stop", "pause", "none"}
    assert any(one.kills and one.way == "restore" for one in rounds)
    assert any(one.trouble_seconds > 60 for one in rounds)
    assert sum(len(plan.rounds) > 1 for plan in plans) > 100
    assert any(plan.tries_wrong_key for plan in plans)
    assert Plan.drawn(7) == Plan.drawn(7)


def test_each_planted_bug_has_a_round_that_finds_it() -> None:
    assert FINDING.keys() == PLANTS.keys()


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
# tidy: allow no-assert, because what is wrong is an AssertionError of the disaster
def test_nothing_is_lost_and_nothing_is_served_twice(
    tmp_path: Path, ground: Ground, seed: int
) -> None:
    Disaster(Plan.drawn(seed), ground, tmp_path).run()


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(
    tmp_path: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    drawn = Plan.drawn(1)
    one = replace(drawn.rounds[0], **(QUIET | FINDING[name]))
    plan = replace(
        drawn,
        kind="directory",
        archive="directory",
        is_encrypted=False,
        tries_wrong_key=False,
        deletes=False,
        interval_ms=1_000 if name == "instants are later" else 20,
        rounds=(one,) * PLANTED_ROUNDS,
    )
    monkeypatch.setenv(PLANTED, name)
    with pytest.raises(AssertionError):
        Disaster(plan, ground, tmp_path).run()
