"""Workers that are killed with SIGKILL again and again: what `workers` measures of it.

Room: bench. Tasks of 10 ms; at three kills of four one process of the worker, at the fourth all of
it, its supervisor first, so that nobody is left to give back what they had.
"""

from __future__ import annotations

import os
import signal
import time
from random import Random

import numpy as np
import numpy.typing as npt

from bench.systems.system import Plan
from bench.systems.workers import Broker, Kind, Workers
from bench.workers import notes

KILLS, BETWEEN_TASKS, TASKS_MAX = 20, 400, 20_000
QUICK_KILLS, QUICK_BETWEEN_TASKS = 4, 100
ACK_US = 1_000_000
"""An ack is on its way for a moment after its task."""
SILENCE_SECONDS = 30.0


def measure(plan: Plan, kind: Kind) -> dict[str, float]:
    """How many tasks were lost, ran twice, and ran twice without a kill that explains it."""
    rows = min(TASKS_MAX, plan.rows)
    count, between = (QUICK_KILLS, QUICK_BETWEEN_TASKS) if plan.quick else (KILLS, BETWEEN_TASKS)
    broker = Broker("dejaq", plan.folder)
    workers = Workers(kind, broker.url, plan.folder)
    kills: dict[int, int] = {}
    draw = Random(22)
    try:
        workers.send("wait", rows, 60.0, 8)
        workers.start("threads", "--lease-ms", "2000")
        for number in range(count):
            if not _wait(workers, min(notes.count(workers.notes) + between, rows)):
                break
            children = workers.children()
            whole = number % 4 == 3
            if whole:
                workers.kill()
            for pid in children if whole or not children else [draw.choice(children)]:
                os.kill(pid, signal.SIGKILL)
                kills[pid] = time.time_ns() // 1_000  # noqa: TID251 - as the notes have it
            if whole:
                workers.start("threads", "--lease-ms", "2000")
        _wait(workers, rows + 1)
        _wait_until_idle(broker)
        noted = notes.without_first_call(notes.read(workers.notes))
    finally:
        workers.stop()
        broker.stop()
        workers.remove()
    twice, unexplained = repeats(noted, kills)
    return {
        "killed_kills": float(len(kills)),
        "killed_lost": float(rows - len(np.unique(noted[:, 0]))),
        "killed_twice": float(twice),
        "killed_unexplained": float(unexplained),
    }


def repeats(noted: npt.NDArray[np.int64], kills: dict[int, int]) -> tuple[int, int]:
    """Tasks that were noted more than once, and those of which no kill explains it.

    A task notes itself at its end: each note but the last must be of a process that was killed
    within a moment.

    >>> rows = np.array([[1, 7, 100], [1, 8, 900], [2, 8, 100], [2, 8, 200]])
    >>> repeats(rows, {7: 500})
    (2, 1)
    """
    order = np.lexsort((noted[:, 2], noted[:, 0]))
    numbers, pids, instants = noted[order].T.tolist()
    twice, unexplained = set(), set()
    for at in range(len(numbers) - 1):
        if numbers[at] != numbers[at + 1]:
            continue
        twice.add(numbers[at])
        if instants[at] < kills.get(pids[at], 1 << 62) - ACK_US:
            unexplained.add(numbers[at])
    return len(twice), len(unexplained)


def _wait(workers: Workers, rows: int) -> bool:
    """True when so many notes are there; False when there are no more for a while."""
    count, changed = -1, time.monotonic()
    while (found := notes.count(workers.notes)) < rows:
        if found != count:
            count, changed = found, time.monotonic()
        if time.monotonic() - changed > SILENCE_SECONDS:
            return False
        time.sleep(0.02)
    return True


def _wait_until_idle(broker: Broker) -> None:
    end = time.monotonic() + SILENCE_SECONDS
    while time.monotonic() < end:
        stats = broker.client.stats("tasks")
        if stats.scheduled + stats.leased == 0:
            return
        time.sleep(0.1)
