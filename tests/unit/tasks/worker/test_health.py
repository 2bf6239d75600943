"""Covers: what the health port of a worker answers.

Not covered: the numbers of tasks (test_metrics_page.py), and their source (test_board.py).
"""

from __future__ import annotations

import httpx

from dejaqueue.tasks import Tasks
from dejaqueue.tasks.worker.board import Tally
from dejaqueue.tasks.worker.health import WorkerHealth
from dejaqueue.tasks.worker.supervisor import Supervisor, WorkerOptions
from tests.unit.tasks.worker.worker_stage import process_options


class _Known(Supervisor):
    is_ready = False

    def tally(self) -> Tally:
        return Tally(at_work=4, rss_bytes=5)


def test_health_and_numbers() -> None:
    supervisor = _Known(Tasks(), WorkerOptions(process_options()))
    health = WorkerHealth(supervisor, "127.0.0.1", 0)
    health.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{health.port}", timeout=20) as http:
            assert http.get("/livez").status_code == 200
            assert http.get("/readyz").status_code == 503
            supervisor.is_ready = True
            assert http.get("/readyz").status_code == 200
            assert http.get("/other").status_code == 404
            lines = http.get("/metrics").text.splitlines()
    finally:
        health.stop()
    for line in (
        "dejaq_worker_at_work 4",
        "dejaq_worker_ready_state 1",
    ):
        assert line in lines
