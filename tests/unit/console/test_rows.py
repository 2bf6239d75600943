"""Rows: what is kept of a topic's stats."""

from __future__ import annotations

from dejaqueue.console.rows import SHOWN, row_of


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
