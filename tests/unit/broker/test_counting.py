"""What a topic counts: from the start of the process on, never less than before.

Covered: baseline, a partition that is read again, late-comers, refusals, lease-ahead misses.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.broker.counting import ARRIVALS_KEPT, Arrivals, PartitionCounts, TopicCounts
from dejaqueue.engine.effects import Leased
from dejaqueue.engine.records import Counts
from dejaqueue.errors import BadRequest
from dejaqueue.wire.frames import Reply


def loaded(counting: PartitionCounts, counts: Counts, appended_bytes: int = 0) -> Any:
    """The partition is read; the journal that it has then."""
    journal = SimpleNamespace(appended_bytes=appended_bytes, cut_bytes=0)
    counting.loaded(cast(Any, SimpleNamespace(counts=counts)), cast(Any, journal))
    return journal


def test_what_is_in_the_journal_already_is_not_counted_again() -> None:
    counting = PartitionCounts()
    counts = Counts(enqueued=100, scheduled=7)
    loaded(counting, counts)
    states, totals, _ = counting.read()
    assert (states["scheduled"], totals["enqueued"]) == (7, 0)
    counts.enqueued += 3
    assert counting.read()[1]["enqueued"] == 3


def test_totals_do_not_fall_when_the_partition_is_read_again() -> None:
    counting = PartitionCounts()
    counts = Counts(enqueued=10)
    loaded(counting, counts, 500)
    counts.enqueued, counts.dead, counts.buried = 15, 2, 1
    _, totals, byte_count = counting.read()
    assert (totals["enqueued"], totals["died"], totals["buried"], byte_count) == (5, 3, 1, 500)
    again = Counts(enqueued=12)  # three were never durable; their producers send them again
    journal = loaded(counting, again)
    states, totals, byte_count = counting.read()
    assert (totals["enqueued"], totals["died"], byte_count) == (5, 3, 500)
    assert states["dead"] == 0
    again.enqueued, journal.appended_bytes = 16, 40
    _, totals, byte_count = counting.read()
    assert (totals["enqueued"], byte_count) == (6, 540)


def test_nothing_is_known_before_the_partition_was_read() -> None:
    states, totals, byte_count = PartitionCounts().read()
    assert not any(states.values())
    assert not any(totals.values())
    assert byte_count == 0


def test_late_comers_are_ready_when_they_came_in() -> None:
    arrivals = Arrivals()
    for number in range(ARRIVALS_KEPT + 3):
        arrivals.note(position=10 + number, now_ms=1_000 + number)
    last = ARRIVALS_KEPT + 12
    stored_at = np.array([last, last, last - 1, 10, 11, last + 1])
    dues_ms = np.array([5, 2_000_000, 5, 5, 5, 5])
    found = arrivals.readies_ms(stored_at << limits.ROW_BITS | 7, dues_ms)
    newest_ms = 1_000 + ARRIVALS_KEPT + 2
    # Of what came in so long ago, or on time, nobody knows more: it counts from its due time.
    assert found == [newest_ms, 2_000_000, newest_ms - 1, 5, 5, 5]


@pytest.mark.parametrize("in_due_order", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 31, 32, 33, 1_000, 1_001, 65_536])
def test_every_row_that_is_pushed_is_counted(rows: int, in_due_order: bool) -> None:
    counting = PartitionCounts(in_due_order=in_due_order)
    counting.came_in(1, np.array([5]), 990)
    dues_ms = [500 + n % 7 for n in range(rows)]
    dues_ms = sorted(dues_ms) if in_due_order else dues_ms
    push = leased(dues_ms, [0] * rows)
    counting.pushed(push, now_us=1_000_000)
    counting.pushed(push, now_us=1_000_000)
    lateness, waited = counting.topic.lateness.read(), counting.topic.waited.read()
    assert lateness.count == waited.count == 2 * rows
    assert lateness.sum == 2 * sum(1_000 * (1_000 - due) for due in dues_ms)
    assert waited.sum == pytest.approx(lateness.sum, rel=0.01)


@pytest.mark.parametrize("in_due_order", [True, False])
def test_what_came_back_is_not_late_by_its_age__what_is_due_later_may_be(
    in_due_order: bool,
) -> None:
    counting = PartitionCounts(in_due_order=in_due_order)
    counting.came_back(10, 900)
    counting.came_back(5, 950)  # another piece; what is below 10 stays known
    counting.pushed(leased([1, 2], [8, 9]), now_us=1_000_000)
    assert counting.topic.lateness.read().count == counting.topic.waited.read().count == 0
    assert counting.pace.late_us_max(1_000) == -1
    # Late: one that came in later, and one that was due only after it had come back.
    counting.pushed(leased([1, 940, 960], [9, 10, 7]), now_us=1_000_000)
    found = counting.topic.lateness.read()
    assert (found.count, found.sum) == (2, 100_000)
    assert counting.topic.waited.read().count == 2
    assert counting.pace.late_us_max(1_000) == 60_000


@pytest.mark.parametrize("in_due_order", [True, False])
def test_what_is_pushed_ahead_is_not_late(in_due_order: bool) -> None:
    counting = PartitionCounts(in_due_order=in_due_order)
    counting.pushed(leased([11, 12], [1, 2]), now_us=10_500)
    counting.pushed(leased([], []), now_us=10_500)
    found = counting.topic.lateness.read()
    assert (found.count, found.sum, found.counts[0]) == (2, 0, 2)


def test_refused_rows_are_counted_and_the_reply_goes_on() -> None:
    topic = TopicCounts()
    replies: list[Any] = []
    statuses = np.array([0, 4, 4, 5], dtype=np.uint8)
    topic.counted("enqueue", 4, replies.append)(Reply(1, 4, statuses=statuses))
    topic.counted("move", 3, replies.append)(Reply(2, 3, error=BadRequest("due", "x", 1)))
    topic.counted("ack", 9, replies.append)(Reply(3, 9))
    assert topic.refused.read() == {
        ("enqueue", "DUPLICATE"): 2,
        ("enqueue", "KEPT"): 1,
        ("move", "BadRequest"): 3,
    }
    assert [reply.number for reply in replies] == [1, 2, 3]


def leased(dues_ms: list[int], sequences: list[int], attempts: list[int] | None = None) -> Leased:
    rows = len(dues_ms)
    return Leased(
        1,
        99_999,
        np.array(sequences, dtype=np.int64),
        np.array(attempts or [1] * rows, dtype=np.uint16),
        np.array(dues_ms, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("rows", "missed"),
    [
        (leased([150, 160, 250], [1, 2, 3]), 2),  # the last is not due yet
        (leased([90, 150], [1, 2]), 1),  # the first was due before anybody waited
        (leased([150, 160], [1, 12]), 1),  # the second came in later
        (leased([150, 160], [1, 2], [2, 1]), 1),  # the first came back from a consumer
        (leased([205, 210], [1, 2]), 0),
    ],
)
def test_misses_are_messages_that_somebody_waited_for(rows: Leased, missed: int) -> None:
    counting = PartitionCounts()
    counting.leased(None, rows, 200)
    assert counting.topic.misses.value == 0, "nobody waited"
    counting.promised(None, at_ms=100, next_sequence=10)
    counting.leased(None, rows, 200)
    assert counting.topic.misses.value == missed
    counting.unpromised(None)
    counting.leased(None, rows, 200)
    assert counting.topic.misses.value == missed
