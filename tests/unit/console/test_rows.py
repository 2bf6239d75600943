"""Rows: what is kept of a topic's stats."""

from __future__ import annotations

from dejaqueue.console.rows import SHOWN, Pace, pace_of, row_of


def test_consumers_are_counted_and_the_worst_partition_is_kept() -> None:
    row = row_of(
        {
            "scheduled": 3,
            "consumers": [{"credit": 2}, {"credit": 0}],
            "partitions": [{"ahead_ms": 5}, {"ahead_ms": 7}],
        }
    )
    assert (row["scheduled"], row["consumers"], row["credit"], row["ahead_ms"]) == (3, 2, 2, 7)
    assert set(row) == {*SHOWN, "consumers", "credit"}


def test_a_pace_is_what_the_broker_kept__nothing_of_an_older_one() -> None:
    assert pace_of({}) == Pace()
    pace = pace_of(
        {"enqueued_per_s": 1, "acked_per_s": 2, "acked_per_s_most": 3, "acked_10s": [0, 50],
         "enqueued_10s": [0, 0], "lateness_p99_us": 7}
    )  # fmt: skip
    assert pace == Pace(1.0, 2.0, 3.0, (), (0.0, 5.0), 7)
