"""Covers: turns of brokers: where partitions ended when one began, answers that wait for its end,
and not for long, and that what two brokers say together is a cut of what caused what.

Not covered: who begins turns (tests/unit/broker/backup/test_cluster_cuts.py).
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dejaqueue.broker.shard.turn_hold import TurnHold, log_name
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import Unavailable
from dejaqueue.journal.segments.store import PARTITION_BITS
from tests.patience import PATIENCE_SECONDS, until

JOURNAL: Any = object()


def hold(seconds_max: float = PATIENCE_SECONDS) -> TurnHold:
    return TurnHold(SteadyClock(), seconds_max)


def test_a_turn_says_where_partitions_ended_when_it_began() -> None:
    turns = hold()
    one, other = turns.open(7, 3, JOURNAL, 10), turns.open(8, 0, JOURNAL, 1)
    assert (one.log, one.number) == (log_name(7, 3), 7 << PARTITION_BITS | 3)
    other.published(5)
    assert turns.begin("a") == {"7/3": 10, "8/0": 5}
    assert turns.end("a")
    assert not turns.end("a")
    other.end()
    other.end()
    assert other.has_ended
    assert turns.begin("b") == {"7/3": 10}


def test_a_partition_that_is_read_again_counts__its_life_before_does_not() -> None:
    turns = hold()
    before = turns.open(7, 3, JOURNAL, 10)
    after = turns.open(7, 3, JOURNAL, 12)
    before.end()
    assert turns.published() == {"7/3": after}
    assert turns.begin("a") == {"7/3": 12}


def test_answers_wait_for_the_end_of_a_turn() -> None:
    turns = hold()
    one = turns.open(7, 3, JOURNAL, 10)
    turns.begin("a")
    answered = threading.Event()

    def publish() -> None:
        one.published(11)
        answered.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(publish)
        until(lambda: one.tail == 11, "it is durable")
        assert not answered.wait(0.05)
        with pytest.raises(Unavailable, match="another turn"):
            turns.begin("b")
        assert not turns.end("b")
        assert turns.end("a")
        assert answered.wait(PATIENCE_SECONDS)
    assert turns.begin("b") == {"7/3": 11}


def test_a_partition_that_is_read_again_in_a_turn_waits_for_its_end() -> None:
    """It may have more than the turn has said of it: what was durable, and not published."""
    turns = hold()
    turns.open(7, 3, JOURNAL, 10).end()
    turns.open(7, 3, JOURNAL, 10)
    turns.begin("a")
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(turns.open, 7, 3, JOURNAL, 12)
        until(lambda: turns.published()["7/3"].tail == 12, "it is read")
        assert not again.done()
        assert turns.open(8, 0, JOURNAL, 5).tail == 5, "of another one nothing was said"
        assert turns.end("a")
        again.result(PATIENCE_SECONDS)
    assert turns.begin("b") == {"7/3": 12, "8/0": 5}


def test_nobody_waits_for_long_for_who_is_silent__and_the_turn_is_none() -> None:
    turns = hold(seconds_max=0.02)
    one = turns.open(7, 3, JOURNAL, 10)
    turns.begin("a")
    one.published(11)  # returns
    assert not turns.end("a")
    turns.begin("b")  # nothing came meanwhile: nobody was answered
    assert turns.end("b")


def test_since_when_there_is_something_new() -> None:
    turns = hold()
    assert turns.take_changed() == 0
    one = turns.open(7, 3, JOURNAL, 10)
    first_us = turns.changed_us
    one.published(11)
    assert turns.take_changed() == first_us > 0
    assert turns.take_changed() == 0
    one.published(12)
    assert turns.changed_us > first_us


@pytest.mark.parametrize("does_hold", [True, False], ids=["holding", "not-holding"])
def test_what_two_brokers_say_is_a_cut__because_answers_wait(does_hold: bool) -> None:
    """Each entry of the second broker is caused by the answer to one of the first, at once."""
    first, second = hold(PATIENCE_SECONDS if does_hold else 0.0), hold()
    one, other = first.open(1, 0, JOURNAL, 0), second.open(2, 0, JOURNAL, 0)
    ends, is_over = list[tuple[int, int]](), threading.Event()

    def work() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            one.published(number)
            other.published(number)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work)
        for turn in range(300):
            left = first.begin(f"{turn}")["1/0"]
            if turn % 10 == 0:  # so much may happen while the other one is told
                threading.Event().wait(0.002)
            right = second.begin(f"{turn}")["2/0"]
            kept = [hold.end(f"{turn}") for hold in (first, second)]
            if all(kept) or not does_hold:
                ends.append((left, right))
        is_over.set()
        for turns in (first, second):
            turns.end("300")
    torn = [(left, right) for left, right in ends if right > left]
    assert bool(torn) is not does_hold, torn[:5]
    assert len(ends) == 300


def test_nothing_is_said_any_more_of_what_is_not_served__though_it_may_still_land() -> None:
    turns = hold()
    one, other = turns.open(7, 3, JOURNAL, 10), turns.open(8, 0, JOURNAL, 1)
    turns.forget_all()
    assert one.has_ended
    assert other.has_ended
    other.published(5)
    assert turns.begin("a") == {}
    assert turns.open(8, 0, JOURNAL, 7).tail == 7
    assert turns.end("a")
    assert turns.begin("b") == {"8/0": 7}
