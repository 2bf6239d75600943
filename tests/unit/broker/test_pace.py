"""Pace: what a topic did lately, in stretches of ten seconds; nothing is in the wrong one."""

from __future__ import annotations

from typing import Any

from dejaqueue.broker.pace import SHOWN_SLOTS, SLOT_MS, SLOTS, Pace, PartitionPace
from dejaqueue.engine.records import Counts
from dejaqueue.metrics import Histogram

HOUR = 1_000 * SLOTS * SLOT_MS
"""When the tests begin: any time will do."""


class Partition:
    """A partition whose steps do so much."""

    def __init__(self, pace: Pace, at_ms: int = HOUR) -> None:
        self.counts = Counts()
        self.pace = PartitionPace(pace)
        self.pace.begin(self.counts, at_ms)

    def step(self, at_ms: int, enqueued: int = 0, acked: int = 0) -> None:
        self.counts.enqueued += enqueued
        self.counts.acked += acked
        self.pace.note(self.counts, at_ms)


def _read(pace: Pace, at_ms: int, *partitions: Partition) -> dict[str, Any]:
    for partition in partitions:
        partition.pace.tell()
    return pace.read(at_ms)


def test_a_topic_that_was_just_begun_has_its_rate_at_the_first_look() -> None:
    pace = Pace(Histogram())
    partition = Partition(pace)
    partition.step(HOUR + 1_500, enqueued=600, acked=300)
    told = _read(pace, HOUR + 2_000, partition)
    assert (told["enqueued_per_s"], told["acked_per_s"]) == (300.0, 150.0)
    assert told["acked_per_s_most"] == 150.0
    assert told["acked_10s"] == []


def test_what_comes_after_a_long_silence_is_counted_when_it_comes() -> None:
    pace = Pace(Histogram())
    partition = Partition(pace)
    partition.step(HOUR + 1_000, acked=50)
    at_ms = HOUR + 20 * SLOT_MS
    partition.step(at_ms + 1, acked=7)
    told = _read(pace, at_ms + SLOT_MS, partition)
    assert told["acked_10s"] == [50, *[0] * 19, 7]
    assert told["acked_per_s_most"] == 5.0


def test_partitions_add_up__and_one_that_is_read_again_counts_nothing_twice() -> None:
    pace = Pace(Histogram())
    one, other = Partition(pace), Partition(pace)
    one.step(HOUR + 1, acked=10)
    other.step(HOUR + 2, acked=5)
    one.pace.begin(one.counts, HOUR + 3)
    one.step(HOUR + 4, acked=1)
    assert _read(pace, HOUR + SLOT_MS, one, other)["acked_10s"] == [16]


def test_an_hour_is_kept__and_five_minutes_are_shown() -> None:
    pace = Pace(Histogram())
    partition = Partition(pace)
    partition.step(HOUR + 1, acked=1_000)
    soon = HOUR + (SLOTS - 1) * SLOT_MS
    told = _read(pace, soon, partition)
    assert told["acked_10s"] == [0] * SHOWN_SLOTS
    assert told["acked_per_s_most"] == 100.0
    assert told["acked_per_s"] == 0.0
    assert _read(pace, soon + SLOT_MS, partition)["acked_per_s_most"] == 0.0


def test_lateness_is_that_of_the_last_five_minutes() -> None:
    lateness = Histogram()
    pace = Pace(lateness)
    partition = Partition(pace)
    partition.step(HOUR)
    lateness.add(5_000_000)
    assert _read(pace, HOUR + 1, partition)["lateness_p99_us"] == 5_000_000
    later = HOUR + 100 * SLOT_MS
    assert _read(pace, later, partition)["lateness_p99_us"] == -1
    partition.step(later + SLOT_MS)  # what a step delivers is counted after it was noted
    lateness.add(900)
    assert _read(pace, later + SLOT_MS, partition)["lateness_p99_us"] == 1_000


def test_a_clock_that_is_set_back_breaks_nothing() -> None:
    pace = Pace(Histogram())
    partition = Partition(pace)
    partition.step(HOUR + 5 * SLOT_MS, acked=3)
    partition.step(HOUR + 2 * SLOT_MS, acked=4)
    told = _read(pace, HOUR + SLOT_MS, partition)
    assert sum(told["acked_10s"]) == 4
    assert told["acked_per_s"] >= 0


def test_what_nobody_uses_costs_and_says_nothing() -> None:
    pace = Pace(Histogram())
    assert pace._counts is None
    assert pace.read(HOUR)["acked_10s"] == []
    pace.add(0, 1, 1)
    assert pace.read(HOUR)["lateness_p99_us"] == -1


def test_the_most_that_a_partition_was_late_is_that_of_the_last_five_minutes() -> None:
    partition = PartitionPace(Pace(Histogram()))
    assert partition.late_us_max(HOUR) == -1
    for at_ms, late_us in ((HOUR, 700), (HOUR + 1, -50), (HOUR + SLOT_MS, 200)):
        partition.pushed(at_ms * 1_000, late_us)
    assert partition.late_us_max(HOUR + SHOWN_SLOTS * SLOT_MS) == 700
    assert partition.late_us_max(HOUR + (SHOWN_SLOTS + 1) * SLOT_MS) == 200
    assert partition.late_us_max(HOUR + (SHOWN_SLOTS + 2) * SLOT_MS) == -1
    partition.pushed((HOUR + SLOT_MS // 2) * 1_000, 900)  # a clock that was set back
    assert partition.late_us_max(HOUR + SLOT_MS) == 900
