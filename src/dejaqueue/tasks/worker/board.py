"""The board: what one worker process has at work, in memory that its supervisor sees, too.

Room: tasks.worker. A file that is mapped into both; no call, no copy, no lock between them.
Holds: a place belongs to one attempt at a time; what a killed process had at work stands there as
it was; each number is written by one thread at a time.
See: worker_process.py, which writes it; supervisor.py, which reads it.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from dejaqueue.clock import Clock, SystemClock
from dejaqueue.tasks.attempt import LOSSES_MAX, Attempt, Fate
from dejaqueue.tasks.worker.task_board import TaskBoard

_HEAD = 8
_READY, _RSS_BYTES, _TOPICS_BYTES = range(3)
_FIELDS = 14
_ID, _ATTEMPT, _TOPIC, _BEGAN_US, _END_US, _DELAY_MS, _LIFE_MS, _IS_LOST = range(8)
_DONE, _RETRIED, _DEAD, _WORK_US = range(8, 12)
_TASK, _LATE_US = range(12, 14)
_TEXT_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class AtWork:
    """An attempt that is at work, as the board has it.

    Attributes:
        topic, id, attempt: of its message.
        end_us: when it has to be over by the clock of `now_us`; 0 = whenever.
        began_us: when it began.
        delay_ms: until the next attempt if this one is over its time; -1 = it is the last one.
        life_ms: how long its result is to be kept; 0 = it is not.
        is_lost: True: if its process dies, it is dead: attempts of it were lost too often.
        task: its name.
    """

    topic: str
    id: int
    attempt: int
    end_us: int
    began_us: int
    delay_ms: int
    life_ms: int
    is_lost: bool
    task: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a process has done so far.

    Attributes:
        done, retried, dead: attempts that ended so.
        work_us: how long they took, in all.
        at_work: now.
        rss_bytes: memory of the process.
    """

    done: int = 0
    retried: int = 0
    dead: int = 0
    work_us: int = 0
    at_work: int = 0
    rss_bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.done + other.done,
            self.retried + other.retried,
            self.dead + other.dead,
            self.work_us + other.work_us,
            self.at_work + other.at_work,
            self.rss_bytes + other.rss_bytes,
        )


def now_us() -> int:
    """Elapsed time, the same in all processes of a machine."""
    return time.monotonic_ns() // 1_000


class Board:
    """The board of one process.

    Args:
        path: of its file; made by the supervisor, which passes it on.
        places: attempts at the same time, at most.
        clock: says how late an attempt begins.

    Attributes:
        tasks: what was done of each task.
    """

    def __init__(self, path: Path, places: int, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.tasks = TaskBoard(path.with_name(f"{path.name}.tasks"))
        numbers = _HEAD + _FIELDS * places
        self._bytes = 8 * numbers + _TEXT_BYTES
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(handle).st_size != self._bytes:
                os.ftruncate(handle, self._bytes)
            self._map = mmap.mmap(handle, self._bytes)
        finally:
            os.close(handle)
        self._view = memoryview(self._map)
        self._numbers = self._view[: 8 * numbers].cast("q")
        self._text_at = 8 * numbers
        self._free: deque[int] = deque(_HEAD + _FIELDS * place for place in range(places))
        self._places = list(self._free)
        self._topics: dict[str, int] = {}

    # --- of the process ------------------------------------------------------------------------

    def name_topics(self, topics: list[str]) -> None:
        """Say which topics the numbers of attempts mean."""
        text = json.dumps(topics).encode()
        assert len(text) <= _TEXT_BYTES, len(text)
        self._map[self._text_at : self._text_at + len(text)] = text
        self._numbers[_TOPICS_BYTES] = len(text)
        self._topics = {topic: number for number, topic in enumerate(topics)}

    def begin(self, attempt: Attempt) -> int:
        """An attempt begins; gives its place."""
        place, numbers, options = self._free.pop(), self._numbers, attempt.task.options
        began_us = now_us()
        hard = options.timeout_hard
        numbers[place + _ATTEMPT] = attempt.number
        numbers[place + _TOPIC] = self._topics[attempt.topic]
        numbers[place + _END_US] = 0 if hard is None else began_us + int(hard * 1e6)
        delay_ms = -1
        if hard is not None and not attempt.is_last:
            delay_ms = int(options.delay_s(attempt.number) * 1_000)
        numbers[place + _DELAY_MS] = delay_ms
        numbers[place + _LIFE_MS] = int((options.result or 0) * 1_000)
        numbers[place + _IS_LOST] = attempt.number > options.retries + LOSSES_MAX
        numbers[place + _TASK] = self.tasks.number_of(attempt.task.name)
        numbers[place + _LATE_US] = max(self._clock.now_us() - attempt.due_ms * 1_000, 0)
        numbers[place + _BEGAN_US] = began_us
        numbers[place + _ID] = attempt.id + 1  # last: from now on it is at work
        return place

    def end(self, place: int, fate: Fate) -> None:
        """It has ended."""
        numbers = self._numbers
        numbers[place + _ID] = 0
        numbers[place + (_DONE if fate.is_done else _DEAD if fate.is_dead else _RETRIED)] += 1
        work_us = now_us() - numbers[place + _BEGAN_US]
        numbers[place + _WORK_US] += work_us
        self.tasks.add(numbers[place + _TASK], fate, work_us, numbers[place + _LATE_US])
        self._free.append(place)

    def set_ready(self) -> None:
        """The process takes tasks from now on."""
        self._numbers[_READY] = 1

    def set_rss(self, rss_bytes: int) -> None:
        """How much memory the process has."""
        self._numbers[_RSS_BYTES] = rss_bytes

    # --- of the supervisor ---------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if the process takes tasks."""
        return bool(self._numbers[_READY])

    def at_work(self) -> list[AtWork]:
        """What is at work; exact when the process has ended."""
        numbers = self._numbers
        length = numbers[_TOPICS_BYTES]
        if not length:
            return []
        topics = json.loads(bytes(self._map[self._text_at : self._text_at + length]))
        tasks = self.tasks.names()
        return [
            AtWork(
                topics[numbers[place + _TOPIC]],
                numbers[place + _ID] - 1,
                numbers[place + _ATTEMPT],
                numbers[place + _END_US],
                numbers[place + _BEGAN_US],
                numbers[place + _DELAY_MS],
                numbers[place + _LIFE_MS],
                bool(numbers[place + _IS_LOST]),
                tasks[numbers[place + _TASK]],
            )
            for place in self._places
            if numbers[place + _ID]
        ]

    def tally(self) -> Tally:
        """What it has done so far."""
        numbers = self._numbers

        def total(field: int) -> int:
            return sum(numbers[place + field] for place in self._places)

        at_work = sum(1 for place in self._places if numbers[place + _ID])
        counts = total(_DONE), total(_RETRIED), total(_DEAD), total(_WORK_US)
        return Tally(*counts, at_work, numbers[_RSS_BYTES])

    def close(self) -> None:
        """Unmap it."""
        self._numbers.release()
        self._view.release()
        self._map.close()
        self.tasks.close()
