"""When messages came in, by their sequence: bounds that hold, however many marks there were."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest

from dejaqueue.engine import arrivals as arrivals_module
from dejaqueue.engine.arrivals import Arrivals


def random_arrivals(random: Random, count: int) -> tuple[Arrivals, list[int]]:
    came_ms: list[int] = []
    arrivals, now_ms = Arrivals(), 1_000
    for _ in range(count):
        now_ms += random.choice([0, 1, 40, 150, 3_000])
        rows = random.randint(1, 4)
        arrivals.note(now_ms, len(came_ms))
        came_ms += [now_ms] * rows
    return arrivals, came_ms


@pytest.mark.parametrize("marks_max", [8, 4_096])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold(seed: int, marks_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals_module, "MARKS_MAX", marks_max)
    random = Random(seed)
    arrivals, came_ms = random_arrivals(random, 200)
    assert len(arrivals.firsts) <= marks_max
    arrivals = Arrivals.from_values(json.loads(json.dumps(arrivals.to_values())))
    starts_ms, ends_ms = arrivals.spans(np.arange(len(came_ms)))
    came = np.array(came_ms)
    assert (starts_ms <= came).all()
    assert (came <= ends_ms).all()
    if marks_max > 8:
        assert (ends_ms - starts_ms).max() < 100  # as fine as marks are
    for cutoff_ms in (0, came_ms[0], came_ms[77], came_ms[78] - 1, came_ms[-1], came_ms[-1] + 1):
        before = arrivals.came_by(cutoff_ms, len(came_ms))
        assert (came[:before] <= cutoff_ms).all()
    assert arrivals.came_by(came_ms[-1], len(came_ms)) == len(came_ms)
    assert came_ms[0] <= arrivals.first_end_ms()


def test_what_is_forgotten_takes_no_mark() -> None:
    arrivals, came_ms = random_arrivals(Random(7), 50)
    before = arrivals.firsts[9]
    spans = [part[before:].tolist() for part in arrivals.spans(np.arange(len(came_ms)))]
    arrivals.forget(before)
    assert arrivals.firsts[0] == before
    sequences = np.arange(before, len(came_ms))
    assert [part.tolist() for part in arrivals.spans(sequences)] == spans
    starts_ms, ends_ms = arrivals.spans(np.array([0]))  # older than all marks
    assert starts_ms.tolist() == ends_ms.tolist() == [arrivals.times_ms[0]]
    arrivals.forget(1_000_000)
    assert len(arrivals.firsts) == 1


def test_a_clock_that_is_put_right() -> None:
    arrivals = Arrivals()
    arrivals.note(1_000, 0)
    arrivals.note(900_000, 1)
    arrivals.set_time(2_000)
    assert arrivals.spans(np.array([0, 1]))[1].tolist() == [1_000, 2_000]
    arrivals.note(1_500, 2)  # never before what came earlier
    assert arrivals.spans(np.array([2]))[0].tolist() == [2_000]


@pytest.mark.parametrize(
    "values", [[[1], [2], [], 100], [[1], [2], 100], "x", [["a"], [1], [1], 1]]
)
def test_what_is_no_marks(values: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Arrivals.from_values(values)
