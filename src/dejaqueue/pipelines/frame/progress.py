"""How far a pipeline is: its steps, and the parts of them that Spark has done, on standard error.

Room: pipelines. click for the terminal; Spark only through the session that `watch` is given.
Holds: standard output is left to results; a line that moves is drawn on a terminal only.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from dejaqueue.clock import Clock, Wake

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

LINE_EVERY_MS = 10_000
DRAW_EVERY_MS = 500


class Progress(Protocol):
    """Says how far a pipeline is."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        ...

    def say(self, text: str) -> None:
        """A line for itself."""
        ...

    def step(self, text: str) -> AbstractContextManager[None]:
        """Say that this is being done, and how long it took."""
        ...

    def watch(self, spark: SparkSession) -> None:
        """From now on, show how far this session is with each step."""
        ...


class Quiet:
    """Says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def say(self, text: str) -> None:
        """Nothing."""

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Nothing around what is done."""
        yield

    def watch(self, spark: SparkSession) -> None:
        """Nothing."""


class Lines(Quiet):
    """Lines on standard error; on a terminal the last one moves.

    Args:
        moves: True on a terminal.
    """

    def __init__(self, clock: Clock, *, moves: bool) -> None:
        self._clock, self._moves = clock, moves
        self._spark: SparkSession | None = None
        self._drawn = ""

    def say(self, text: str) -> None:
        """A line for itself."""
        self._wipe()
        click.echo(text, err=True)

    def watch(self, spark: SparkSession) -> None:
        """From now on, show how far this session is with each step."""
        # Through Spark Connect nobody tells.
        self._spark = spark if hasattr(spark, "_jsparkSession") else None

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say that this is being done, and how long it took."""
        began_ms = self._clock.now_ms()
        done = Wake()
        thread = threading.Thread(
            target=self._show, args=(text, done), name="pipeline-progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            done.ring()
            thread.join()
        self.say(f"{text}: {(self._clock.now_ms() - began_ms) / 1_000:.1f} s")

    def _show(self, text: str, done: Wake) -> None:
        """Until it is done, say how far it is: now and then, or always anew on one line."""
        every_ms = DRAW_EVERY_MS if self._moves else LINE_EVERY_MS
        while True:
            shown = f"{text} …{self._parts()}"
            if self._moves:
                self._wipe()
                click.echo(shown, err=True, nl=False)
                self._drawn = shown
            if self._clock.wait_until((self._clock.now_ms() + every_ms) * 1_000, done):
                return
            if not self._moves:
                click.echo(shown, err=True)

    def _parts(self) -> str:
        """How many parts of the stages that run are done; "" if nothing runs."""
        if self._spark is None:
            return ""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        total = sum(stage.numTasks for stage in stages if stage is not None)
        return f" {done:,} of {total:,} parts" if total else ""

    def _wipe(self) -> None:
        if self._drawn:
            click.echo("\r" + " " * len(self._drawn) + "\r", err=True, nl=False)
            self._drawn = ""


def make_progress(clock: Clock) -> Progress:
    """Lines on standard error."""
    return Lines(clock, moves=sys.stderr.isatty())
