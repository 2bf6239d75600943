"""Covers: what the rows of `workers` compare, which repeats a kill explains, and the whole question
at its smallest, of DejaQ alone. Not here: the peers, which scripts/install_peers.sh installs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.questions import workers, workers_killed
from bench.systems.system import Plan
from bench.systems.workers import KINDS
from bench.targets import TARGETS


def test_rates_are_compared_with_the_best_peer_and_celery_with_celery() -> None:
    found = {
        ("dejaq", "noop_threads"): [8.0, 10.0, 9.0],
        ("celery_dejaq", "noop_threads"): [6.0],
        ("celery_redis", "noop_threads"): [2.0],
        ("celery_redis", "noop_prefork"): [3.0],
        ("dejaq", "noop_asyncio"): [8.0],
        ("arq", "noop_asyncio"): [2.0],
    }
    rows = {(row.system, row.case): row for row in workers.rows_of(found).rows}
    own = rows["dejaq", "noop_threads"]
    assert (own.value, own.ratio, own.ratio_to) == (9.0, 3.0, "celery_redis")
    assert rows["celery_dejaq", "noop_threads"].ratio == 3.0
    assert rows["dejaq", "noop_asyncio"].ratio_to == "arq"
    assert rows["celery_redis", "noop_threads"].ratio is None


def test_a_repeat_is_explained_by_a_kill_of_the_process_that_ran_it_before() -> None:
    late = 100 + 2 * workers_killed.ACK_US
    noted = np.array([[1, 7, 100], [1, 8, late + 9], [2, 9, 100], [2, 8, late + 9], [3, 8, 50]])
    assert workers_killed.repeats(noted, {7: 150}) == (2, 1)
    assert workers_killed.repeats(noted, {7: late, 9: 150}) == (2, 1)


def test_every_target_has_a_case_with_a_unit() -> None:
    wanted = [target for target in TARGETS if target.question == "workers"]
    units = {target.case: workers.unit_of(target.case) for target in wanted}
    assert units["eta_p99"] == "ms"
    assert units["week_memory"] == "MB"
    assert {units[case] for case in ("eta_twice", "week_lost", "killed_lost")} == {"tasks"}


@pytest.mark.slow
def test_the_question_is_answered_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = replace(KINDS[0], pools=("asyncio",))
    monkeypatch.setattr(workers, "available", lambda: ([kind], []))
    monkeypatch.setattr(workers, "QUICK_AHEAD_MS", 3_000)
    monkeypatch.setattr(workers, "QUICK_RESTARTS", 2)
    plan = Plan(2_000, 0.3, 1, 8, tmp_path, ("dejaq",), 1, quick=True)
    outcome = workers.measure(plan, lambda _text: None)
    found = {row.case: row.value for row in outcome.rows}
    assert all(found[case] > 0 for case in ("send", "noop_asyncio", "wait_asyncio"))
    wanted = {target.case for target in TARGETS if target.question == "workers"}
    assert wanted - set(found) == {"noop_threads"}
    zero = {name: found[name] for name in found if name.endswith(("_lost", "_early", "explained"))}
    assert set(zero.values()) == {0.0}, zero
    assert found["killed_kills"] >= 4  # one of them of a whole worker
    assert list(tmp_path.iterdir()) == []
