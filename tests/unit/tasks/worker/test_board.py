"""Covers: what one process writes on its board, another reads, while it works and after it died.

Not covered: what the supervisor makes of it (test_supervisor.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.tasks import Attempt, Tasks
from dejaqueue.tasks.attempt import LOSSES_MAX, Fate
from dejaqueue.tasks.worker.board import AtWork, Board, Tally, now_us
from dejaqueue.tasks.worker.task_board import OTHERS
from dejaqueue.testing import VirtualClock


def test_what_is_at_work_is_seen_on_the_other_side(tmp_path: Path) -> None:
    mine, other = (Board(tmp_path / "board", 2) for _ in range(2))
    assert other.at_work() == []
    mine.name_topics(["a", "bé"])
    mine.tasks.name(["s", "t"])
    task = Tasks().add(print, "t", {"timeout_hard": 2, "retries": 1, "backoff": 3, "result": 4})
    place = mine.begin(Attempt(task, 77, "bé", 1))
    [found] = other.at_work()
    assert found == AtWork(
        "bé", 77, 1, found.began_us + 2_000_000, found.began_us, 3_000, 4_000, False, "t"
    )
    assert found.began_us <= now_us()
    second = mine.begin(Attempt(task, 0, "a", 2 + LOSSES_MAX))
    last = next(one for one in other.at_work() if one.id == 0)
    assert (last.topic, last.delay_ms, last.is_lost) == ("a", -1, True)
    mine.end(place, Fate(is_done=True))
    mine.end(second, Fate(is_dead=True))
    assert other.at_work() == []
    mine.end(mine.begin(Attempt(task, 5, "a", 1)), Fate(delay_s=1))
    tally = other.tally()
    assert (tally.done, tally.retried, tally.dead, tally.at_work) == (1, 1, 1, 0)
    [(name, of_task)] = other.tasks.tallies().items()
    assert (name, of_task.done, of_task.retried, of_task.dead) == ("t", 1, 1, 1)
    assert of_task.work_us.sum == tally.work_us
    mine.close()
    other.close()


def test_lateness_is_from_due_to_begun(tmp_path: Path) -> None:
    clock = VirtualClock()
    board = Board(tmp_path / "board", 1, clock)
    board.name_topics(["a"])
    task = Tasks().add(print, "t", {})
    due_ms = clock.now_ms()
    clock.advance(ms=70)
    board.end(board.begin(Attempt(task, 1, "a", 1, due_ms)), Fate(is_done=True))
    board.end(board.begin(Attempt(task, 2, "a", 1, due_ms + 1_000)), Fate(is_done=True))
    late_us = board.tasks.tallies()[OTHERS].late_us  # nobody named it
    assert (late_us.count, late_us.sum) == (2, 70_000)
    board.close()


def test_a_process_says_that_it_is_ready_and_how_large(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 1)
    assert not board.is_ready
    board.set_ready()
    board.set_rss(1 << 20)
    assert board.is_ready
    assert board.tally() + Tally(done=2, rss_bytes=1) == Tally(done=2, rss_bytes=(1 << 20) + 1)
    board.close()


def test_more_at_work_than_places_is_a_fault(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 1)
    board.name_topics(["a"])
    task = Tasks().add(print, "t", {})
    board.begin(Attempt(task, 1, "a", 1))
    with pytest.raises(IndexError):
        board.begin(Attempt(task, 2, "a", 1))
    board.close()
