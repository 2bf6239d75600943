"""Charts of a load: each column is the fullest of its stretches, and nothing is invented."""

from __future__ import annotations

import numpy as np

from dejaqueue.pipelines.load.drawing import COLUMNS_MAX, highest, load_sections
from dejaqueue.pipelines.load.series import HOUR_MS, MINUTE_MS, SECOND_MS, Load

LOAD = Load.of(np.array([0, 1, 61, 7_200]), np.array([3, 5, 2, 9]))


def test_a_column_is_the_fullest_of_its_stretches() -> None:
    assert highest(LOAD, SECOND_MS, 0, 62, 60).tolist() == [5.0, 2.0]
    assert highest(LOAD, MINUTE_MS, 0, 3, 1).tolist() == [8.0, 2.0, 0.0]
    assert highest(LOAD, SECOND_MS, 1_000, 2, 1).tolist() == [5.0, 0.0]


def test_seconds_minutes_and_hours_are_shown_where_there_are_any() -> None:
    three_hours = load_sections(LOAD, 0, 3 * HOUR_MS)
    assert [text.partition("</h2>")[0].rpartition(">")[2] for text in three_hours] == [
        "By second",
        "By minute",
        "By hour",
    ]
    assert "fullest of 23 seconds" in three_hours[0]
    assert 3 * 3_600 / COLUMNS_MAX <= 23
    assert len(load_sections(LOAD, 0, 90 * SECOND_MS)) == 1
    assert "The fullest hour is 1970-01-01T00:00:00.000Z with 10 messages" in three_hours[2]
