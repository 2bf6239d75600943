"""The board of tasks: what one worker process has done of each task, for its supervisor to see.

Room: tasks.worker. A file that is mapped into both; threads of the process take turns to write.
Holds: a number never falls; what a killed process had done stands there as it was; tasks beyond
TASKS_MAX are counted together, under OTHERS.
See: board.py, which tells it what ended; metrics_page.py, which shows it.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dejaqueue.metrics import DURATION_BOUNDS_US, HistogramCounts
from dejaqueue.tasks.attempt import Fate

TASKS_MAX = 256
"""Tasks that are counted one by one."""
OTHERS = "(others)"
"""The name under which all further ones are counted."""
_NAMES_BYTES_MAX = 1 << 17
_BUCKETS = len(DURATION_BOUNDS_US) + 1
_DONE, _RETRIED, _DEAD, _WORK_US, _LATE_US, _WORK = range(6)
_LATE = _WORK + _BUCKETS
_FIELDS = _LATE + _BUCKETS
_NUMBERS = 1 + TASKS_MAX * _FIELDS
"""The first one says how many bytes the names have."""


def _nothing() -> HistogramCounts:
    return HistogramCounts(DURATION_BOUNDS_US, np.zeros(_BUCKETS, np.int64), 0)


@dataclass(frozen=True, slots=True)
class TaskTally:
    """What was done of a task.

    Attributes:
        done, retried, dead: attempts that ended so.
        work_us: how long they took, in microseconds.
        late_us: from when each was due until it began.
    """

    done: int = 0
    retried: int = 0
    dead: int = 0
    work_us: HistogramCounts = field(default_factory=_nothing)
    late_us: HistogramCounts = field(default_factory=_nothing)

    def __add__(self, other: TaskTally) -> TaskTally:
        return TaskTally(
            self.done + other.done,
            self.retried + other.retried,
            self.dead + other.dead,
            self.work_us + other.work_us,
            self.late_us + other.late_us,
        )


class TaskBoard:
    """What one process has done, by task.

    Args:
        path: of its file; made by the supervisor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        size = 8 * _NUMBERS + _NAMES_BYTES_MAX
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(handle).st_size != size:
                os.ftruncate(handle, size)
            self._map = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self._view = memoryview(self._map)
        self._numbers = self._view[: 8 * _NUMBERS].cast("q")
        self._tasks: dict[str, int] = {}
        self._mutex = threading.Lock()

    def name(self, tasks: Sequence[str]) -> None:
        """Say which tasks there are; called by the process, once."""
        names = [OTHERS]
        length = 0
        for name in tasks:
            length += len(json.dumps(name)) + 2
            if len(names) < TASKS_MAX and length < _NAMES_BYTES_MAX - 100:
                names.append(name)
        text = json.dumps(names).encode()
        self._map[8 * _NUMBERS : 8 * _NUMBERS + len(text)] = text
        self._numbers[0] = len(text)
        self._tasks = {name: number for number, name in enumerate(names)}

    def number_of(self, task: str) -> int:
        """The number of a task; that of OTHERS if it has none of its own."""
        return self._tasks.get(task, 0)

    def names(self) -> list[str]:
        """The tasks, by number."""
        length = self._numbers[0]
        at = 8 * _NUMBERS
        return json.loads(bytes(self._map[at : at + length])) if length else [OTHERS]

    def add(self, number: int, fate: Fate, work_us: int, late_us: int) -> None:
        """An attempt of a task has ended. Cost: a microsecond or two."""
        numbers, at = self._numbers, 1 + number * _FIELDS
        work, late = (bisect_left(DURATION_BOUNDS_US, value) for value in (work_us, late_us))
        with self._mutex:
            numbers[at + (_DONE if fate.is_done else _DEAD if fate.is_dead else _RETRIED)] += 1
            numbers[at + _WORK_US] += work_us
            numbers[at + _LATE_US] += late_us
            numbers[at + _WORK + work] += 1
            numbers[at + _LATE + late] += 1

    def tallies(self) -> dict[str, TaskTally]:
        """What was done of each task that was begun."""
        rows = np.array(self._numbers[1:], np.int64).reshape(TASKS_MAX, _FIELDS)
        found = {}
        for name, row in zip(self.names(), rows, strict=False):
            if row.any():
                done, retried, dead, work_us, late_us = row[:_WORK].tolist()
                work = HistogramCounts(DURATION_BOUNDS_US, row[_WORK:_LATE], work_us)
                late = HistogramCounts(DURATION_BOUNDS_US, row[_LATE:], late_us)
                found[name] = TaskTally(done, retried, dead, work, late)
        return found

    def close(self) -> None:
        """Unmap it."""
        self._numbers.release()
        self._view.release()
        self._map.close()


def total_of(one: dict[str, TaskTally], other: dict[str, TaskTally]) -> dict[str, TaskTally]:
    """The sum of what two processes have done."""
    total = dict(one)
    for name, tally in other.items():
        total[name] = total[name] + tally if name in total else tally
    return total
