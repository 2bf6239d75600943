"""Windows: times are even and in order, whatever the order in which rows are met.

Not covered: the walk over a topic (tests/rules/test_browsing.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls.window import PARTS, Places, Window, parse_window, times_of
from dejaqueue.errors import BadRequest

WINDOW = Window(1_000_000, 2_000_000)
FINE = {"starts_ms": [5, 9], "counts": [2, 1], "done": [0, 0]}


def met(dues_ms: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
    """Places of rows that are met so many at a time; what is known goes through JSON between."""
    places = Places.of(dues_ms)
    found = []
    for first in range(0, dues_ms.size, step):
        found.append(places.take(dues_ms[first : first + step]))
        places = Places.from_values(places.to_values())
    return np.concatenate(found)


@pytest.mark.parametrize("step", [1, 7, 1_000])
def test_each_place_is_given_once__and_order_is_kept_to_a_part(step: int) -> None:
    dues_ms = np.random.default_rng(7).integers(0, 10**12, 1_000)
    places = met(dues_ms, step)
    assert sorted(places.tolist()) == list(range(1_000))
    wrong = np.abs(places - np.argsort(np.argsort(dues_ms)))
    assert int(wrong.max()) <= 1_000 // PARTS + 1
    if step == 1_000:
        assert int(wrong.max()) == 0, "of one command none changes places"


@pytest.mark.parametrize("count", [1, 2, PARTS, PARTS + 1])
def test_what_is_due_at_one_instant_is_told_apart_as_it_came(count: int) -> None:
    assert met(np.full(count, 77), 3).tolist() == list(range(count))


def test_who_was_not_counted_shares_the_last_place_of_its_part() -> None:
    places = Places.of(np.array([5, 9]))
    assert places.take(np.array([5, 5, 1, 100, 9])).tolist() == [0, 0, 0, 1, 1]
    assert (places.count, places.to_values()["done"]) == (2, [1, 1])


def test_times_of_partitions_lie_between_each_others__all_in_the_window() -> None:
    times_ms = [times_of(WINDOW, np.arange(500), 500, index, 4) for index in range(4)]
    assert np.diff(np.sort(np.concatenate(times_ms))).tolist() == [500] * 1_999
    assert all(np.diff(one).min() > 0 for one in times_ms)
    crowded = times_of(Window(5, 7), np.arange(10), 10, 3, 4)
    assert sorted(set(crowded.tolist())) == [5, 6]
    far = Window(0, limits.INSTANT_MS_MAX)
    assert times_of(far, np.array([9]), 10, 0, 1)[0] < limits.INSTANT_MS_MAX


@pytest.mark.parametrize(
    ("name", "value"),
    [("starts_ms", [9, 5]), ("starts_ms", [5, 5]), ("starts_ms", [5]), ("counts", [2, 0]),
     ("done", [3, 0]), ("done", [-1, 0]), ("counts", [2, True]), ("counts", 7), ("counts", []),
     ("counts", [2, limits.WINDOW_ROWS_MAX + 1])],
)  # fmt: skip
def test_what_nobody_was_told_is_refused(name: str, value: object) -> None:
    assert Places.from_values(FINE).to_values() == FINE
    with pytest.raises(BadRequest, match="after"):
        Places.from_values(FINE | {name: value})
    with pytest.raises(BadRequest, match="after"):
        Places.from_values([5])


@pytest.mark.parametrize(
    ("values", "field"),
    [({"window_from": 5}, "window_to"), ({"window_to": 5}, "window_from"),
     ({"window_from": 5, "window_to": 5}, "window_to"),
     ({"window_from": -1, "window_to": 5}, "window_from"),
     ({"window_from": 5, "window_to": True}, "window_to")],
)  # fmt: skip
def test_a_window_that_is_none_is_refused(values: dict[str, Any], field: str) -> None:
    assert parse_window({}) is None
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        parse_window(values)
