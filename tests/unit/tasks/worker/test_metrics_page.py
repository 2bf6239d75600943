"""Covers: the page of a worker's metrics, as Prometheus reads it.

Not covered: how it is asked for (test_health.py), and that workers count (test_workers.py).
"""

from __future__ import annotations

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from dejaqueue.tasks.attempt import Fate
from dejaqueue.tasks.worker.board import Tally
from dejaqueue.tasks.worker.metrics_page import METRICS, metrics_text
from dejaqueue.tasks.worker.task_board import TaskBoard, TaskTally
from tests.integration.metrics_page import Page


class _Worker:
    replaced = 2
    is_ready = True

    def __init__(self, tallies: dict[str, TaskTally]) -> None:
        self._tallies = tallies
        self.lost = {"mail": 1, "gone": 3}

    def tally(self) -> Tally:
        return Tally(at_work=4, rss_bytes=5)

    def task_tallies(self) -> dict[str, TaskTally]:
        return self._tallies


def test_every_metric_is_shown_by_task(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "tasks")
    board.name(["mail", 'a "b"'])
    board.add(1, Fate(is_done=True), 1_500, 30_000)
    board.add(2, Fate(is_done=True), 1, 1)
    text = metrics_text(_Worker(board.tallies()))
    board.close()
    page = Page(list(text_string_to_metric_families(text)))
    shown = {f"dejaq_worker_{one.name}".removesuffix("_total"): one.type for one in METRICS}
    assert page.types == shown
    attempts = "dejaq_worker_attempts_total"
    assert page.get(attempts, task="mail", outcome="done") == 1
    assert page.get(attempts, task="mail", outcome="lost") == 1
    assert page.get(attempts, task="gone", outcome="lost") == 3
    assert page.get(attempts, task='a "b"', outcome="done") == 1
    took = "dejaq_worker_attempt_seconds"
    buckets = {
        float(dict(labels)["le"]): value
        for labels, value in page.all(f"{took}_bucket", task="mail").items()
    }
    assert (buckets[0.001], buckets[0.002], buckets[math.inf]) == (0, 1, 1)
    assert math.isclose(page.get(f"{took}_sum", task="mail"), 0.0015)
    assert math.isclose(page.get("dejaq_worker_lateness_seconds_sum", task="mail"), 0.03)
    assert page.get("dejaq_worker_processes_replaced_total") == 2
