"""Covers: `dejaq worker` under load, its processes and itself killed again and again: every task is
run at least once, and twice only those that ran, or had just ended, when a process was killed.

Not covered: single kills and what they say (tests/unit/tasks/worker/test_supervisor.py); brokers
that are killed (tests/crash).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from functools import partial
from pathlib import Path

import dejaqueue
from dejaqueue.client import Client
from dejaqueue.clock import SteadyClock
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS, until

TASKS = 1_500
KILLS = 8
ACK_US = 1_000_000
"""An ack is on its way for a moment after the task has ended; longer on a busy machine."""

APPLICATION = """
import os, time
from dejaqueue.tasks import Tasks

app = Tasks(os.environ["TASKS_URL"])


@app.task(name="work")
def work(number: int) -> None:
    note = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(note, f"{number} {os.getpid()} begun {time.monotonic_ns() // 1000}\\n".encode())
    time.sleep(0.01)
    os.write(note, f"{number} {os.getpid()} ended {time.monotonic_ns() // 1000}\\n".encode())
    os.close(note)
"""


class Worker:
    """`dejaq worker`, started again when it is killed as a whole."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self.log = folder / "worker.log"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "dejaqueue", "worker", "program:app", "-c", "4"]
        command += ["--processes", "2", "--lease-ms", "2000"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stderr=log
            )

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        if self.process.poll() is None:
            for pid in [*self.children(), self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()


class Runs:
    """What the tasks have noted: which process began and ended each, and when."""

    def __init__(self, folder: Path) -> None:
        self.begun: dict[int, list[int]] = defaultdict(list)
        self.ended_us: dict[tuple[int, int], int] = {}
        note = folder / "runs"
        for line in note.read_text().splitlines() if note.exists() else []:
            number, pid, what, instant_us = line.split()
            if what == "begun":
                self.begun[int(number)].append(int(pid))
            else:
                self.ended_us[int(number), int(pid)] = int(instant_us)

    def done(self) -> int:
        """Tasks that were run to their end."""
        return len({number for number, _ in self.ended_us})


def test_killed_again_and_again_under_load_no_task_is_lost(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log")
    broker.start()
    (tmp_path / "program.py").write_text(APPLICATION)
    source = str(Path(dejaqueue.__file__).parents[1])
    environment = os.environ | {"TASKS_URL": broker.url, "PYTHONPATH": source}
    kills: dict[int, int] = {}  # when each process was killed
    draw, pause, clock = random.Random(22), threading.Event(), SteadyClock()
    start_us = clock.now_us()
    worker = None
    try:
        with Client(broker.url) as client:
            client.create_topic("tasks")
            rows = [{"json": {"task": "work", "args": {"number": n}}} for n in range(TASKS)]
            client.send_batch("tasks", rows).raise_for_status()
            worker = Worker(tmp_path, environment)
            for kill in range(KILLS):
                enough = min(Runs(tmp_path).done() + 60, TASKS)
                until(partial(reached, tmp_path, enough), "work goes on")
                if enough == TASKS:
                    break
                pause.wait(draw.random() / 10)
                at_once = worker.children() if kill % 4 == 3 else [draw.choice(worker.children())]
                if kill % 4 == 3:  # the supervisor first: nobody gives back what its processes had
                    os.kill(worker.process.pid, signal.SIGKILL)
                for pid in at_once:
                    os.kill(pid, signal.SIGKILL)
                    kills[pid] = monotonic_us()
                if kill % 4 == 3:
                    worker.process.wait()
                    worker.start()
            until(partial(reached, tmp_path, TASKS), "every task is run")
            until(lambda: idle(client), "and acked")
        assert worker.stop() == 0
    finally:
        if worker is not None:
            worker.kill()
        broker.kill()
    assert len(kills) >= KILLS // 2, "there was something to kill"
    runs = Runs(tmp_path)
    twice = {number: pids for number, pids in runs.begun.items() if len(pids) > 1}
    unexplained = {}
    for number, pids in twice.items():
        # Each run but the last was cut off by a kill, or ended just before its process was killed.
        for pid in pids[:-1]:
            ended_us = runs.ended_us.get((number, pid), 1 << 62)
            if pid not in kills or ended_us < kills[pid] - ACK_US:
                unexplained[number] = pids
    print(f"{len(kills)} kills, {len(twice)} of {TASKS} tasks twice: {sorted(twice)}, "
          f"{(clock.now_us() - start_us) / 1e6:.1f} s")  # fmt: skip
    assert runs.done() == TASKS
    assert twice, "a kill hit a task that ran"
    assert unexplained == {}
    assert "WorkerLost" in worker.log.read_text()


def reached(folder: Path, count: int) -> bool:
    return Runs(folder).done() >= count


def idle(client: Client) -> bool:
    stats = client.stats("tasks")
    return stats.scheduled + stats.leased == 0


def monotonic_us() -> int:
    from dejaqueue.tasks.worker.board import now_us

    return now_us()
