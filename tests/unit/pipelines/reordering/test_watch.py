"""Covers: counting the rows of queries, each batch once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dejaqueue.pipelines.reordering.watch import Tally


@dataclass
class Batch:
    batchId: int  # noqa: N815 - Spark's name
    numInputRows: int  # noqa: N815


@dataclass
class Query:
    """A query that is over after so many looks."""

    looks: int
    recentProgress: list[Batch] = field(default_factory=list)  # noqa: N815
    is_stopped: bool = False

    def awaitTermination(self, seconds: int) -> bool:
        self.looks -= 1
        return self.looks <= 0

    def stop(self) -> None:
        self.is_stopped = True


def test_a_batch_counts_once__an_empty_one_has_the_number_of_the_next() -> None:
    query: Any = Query(3, [Batch(0, 5), Batch(1, 0)])
    tally = Tally()
    tally.add("records_in", query)
    tally.poll(1)
    query.recentProgress += [Batch(1, 7), Batch(2, 0)]
    tally.poll(1)
    tally.poll(1)
    assert tally.figures == {"records_in": 12, "records_out": 0, "batches": 2}
    assert tally.text() == "records in 12, records out 0, batches 2"
    tally.stop()
    assert query.is_stopped


def test_a_query_that_ends_by_itself_is_waited_for() -> None:
    query: Any = Query(4, [Batch(0, 3)])
    tally = Tally()
    tally.finish("records_out", query)
    assert query.looks == 0
    assert tally.figures["records_out"] == 3
