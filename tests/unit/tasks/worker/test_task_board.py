"""Covers: what one process has done of each task is read by another, and summed over processes.

Not covered: which attempt is of which task (test_board.py).
"""

from __future__ import annotations

import threading
from pathlib import Path

from dejaqueue.tasks.attempt import Fate
from dejaqueue.tasks.worker.task_board import (
    OTHERS,
    TASKS_MAX,
    TaskBoard,
    TaskTally,
    total_of,
)


def test_what_was_done_is_seen_on_the_other_side_by_task(tmp_path: Path) -> None:
    mine, other = (TaskBoard(tmp_path / "tasks") for _ in range(2))
    assert other.tallies() == {}
    mine.name(["mail", "réport", "idle"])
    mine.add(mine.number_of("mail"), Fate(is_done=True), 1_500, 200)
    mine.add(mine.number_of("mail"), Fate(is_dead=True), 90_000, 0)
    mine.add(mine.number_of("réport"), Fate(delay_s=1), 1 << 60, 5)
    found = other.tallies()
    assert set(found) == {"mail", "réport"}
    mail = found["mail"]
    assert (mail.done, mail.retried, mail.dead) == (1, 0, 1)
    assert (mail.work_us.sum, mail.work_us.count, mail.late_us.sum) == (91_500, 2, 200)
    assert dict(zip(mail.work_us.bounds, mail.work_us.counts.tolist(), strict=False))[2_000] == 1
    assert found["réport"].work_us.counts.tolist()[-1] == 1  # beyond the last bound
    mine.close()
    other.close()


def test_threads_lose_no_attempt(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "tasks")
    board.name(["t"])

    def work() -> None:
        for _ in range(2_000):
            board.add(1, Fate(is_done=True), 1, 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert board.tallies()["t"].done == 8_000
    board.close()


def test_more_tasks_than_there_are_places_for_are_counted_together(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "tasks")
    board.name([f"task-{number}" for number in range(TASKS_MAX + 10)])
    assert board.number_of(f"task-{TASKS_MAX - 2}") == TASKS_MAX - 1
    assert board.number_of(f"task-{TASKS_MAX - 1}") == 0
    board.add(0, Fate(is_done=True), 1, 1)
    assert board.tallies()[OTHERS].done == 1
    board.name(["n" * 3_000 for _ in range(TASKS_MAX)])  # and so are names that are too long
    assert len(board.names()) < TASKS_MAX
    board.close()


def test_tallies_of_processes_are_summed() -> None:
    one, two = {"a": TaskTally(done=1)}, {"a": TaskTally(done=2), "b": TaskTally(dead=1)}
    total = total_of(one, two)
    assert (total["a"].done, total["b"].dead, one["a"].done) == (3, 1, 1)
