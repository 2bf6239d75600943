"""What the harness needs of a system: start, a few measured cases, stop.

Room: bench. The contract; one file per system beside this one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.load import BATCH_ROWS, Load
from bench.machine import processor_seconds

WARM_ROWS, WARM_SECONDS = 10_000, 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure.

    Attributes:
        rows: messages of a case at most.
        seconds: length of a case at most; whichever comes first ends it.
        rounds: how often every system has its turn.
        senders: producers of the case `single`.
        folder: where servers keep their files.
        systems: names of the systems to measure.
        messages: size of `scale`.
        quick: True for a run of seconds that only shows that everything works.
    """

    rows: int
    seconds: float
    rounds: int
    senders: int
    folder: Path
    systems: tuple[str, ...]
    messages: int
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """So many messages in so many seconds."""

    rows: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Messages per second."""
        return self.rows / self.seconds


class Stopwatch:
    """Runs from its making; says when a case has had its time."""

    def __init__(self, seconds_max: float) -> None:
        self._start = time.perf_counter()
        self._end = self._start + seconds_max

    def is_over(self) -> bool:
        """True when the time is up."""
        return time.perf_counter() >= self._end

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start


class System(ABC):
    """A system under measurement. One object lives for one round."""

    name: str
    """As in the rows: `dejaq`, `redis`, `beanstalkd`."""

    @staticmethod
    @abstractmethod
    def version() -> str | None:
        """What is installed; None if it is not."""

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Start its server, files in a new folder below `folder`, and connect."""

    @abstractmethod
    def stop(self) -> None:
        """Stop what `start` started. Twice, or early, is fine."""

    def warm(self, plan: Plan) -> None:
        """Run every case with few messages: what is imported or opened once is not measured."""
        small = replace(plan, rows=WARM_ROWS, seconds=WARM_SECONDS)
        for run in self.cases().values():
            run(small, 0)

    @abstractmethod
    def pid(self) -> int:
        """Process id of its server."""

    @abstractmethod
    def cases(self) -> dict[str, Callable[[Plan, int], Measured]]:
        """The cases of `throughput` that it can do, by name, called with the plan and a seed."""


def with_cost(system: System, run: Callable[[], Measured]) -> tuple[Measured, float]:
    """Measure, and say how many µs of processor time a message took, on both sides."""
    before = processor_seconds(system.pid())
    measured = run()
    spent = processor_seconds(system.pid()) - before
    return measured, spent * 1e6 / measured.rows


def batches(load: Load, batch_rows: int = BATCH_ROWS) -> list[slice]:
    """The load in slices of so many rows."""
    return [slice(at, min(at + batch_rows, load.rows)) for at in range(0, load.rows, batch_rows)]
