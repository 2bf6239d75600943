"""What is shown while the demo runs: bars on a terminal, a plain line now and then elsewhere.

Room: cli. rich is imported only for bars.
Holds: draws at most DRAWS_A_SECOND times a second, as the drawing shares a core with the replay.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from dejaqueue.clock import Clock

if TYPE_CHECKING:
    from rich.progress import TaskID

DRAWS_A_SECOND = 5
LINE_EVERY_MS = 5_000


class Progress(Protocol):
    """Counts by name, on their way to their totals."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show no more."""
        ...

    def show(self, counts: dict[str, tuple[int, int]]) -> None:
        """Show (count, total) by name; may be called as often as one likes."""
        ...

    def say(self, text: str) -> None:
        """A line for itself."""
        ...


def make_progress(clock: Clock) -> Progress:
    """Bars if standard error is a terminal, lines otherwise."""
    return Bars(clock) if sys.stderr.isatty() else Lines(clock)


class Lines:
    """A plain line every few seconds, on standard error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = clock.now_ms()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def show(self, counts: dict[str, tuple[int, int]]) -> None:
        """A line with all counts, if the last one is long enough ago."""
        now_ms = self._clock.now_ms()
        if now_ms - self._last_ms < LINE_EVERY_MS:
            return
        self._last_ms = now_ms
        shown = [f"{name} {count:,} of {total:,}" for name, (count, total) in counts.items()]
        self.say(", ".join(shown))

    def say(self, text: str) -> None:
        """A line for itself."""
        click.echo(text, err=True)


class Bars:
    """A bar for each name, on standard error."""

    def __init__(self, clock: Clock) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._clock = clock
        self._last_ms = 0
        self._places: dict[str, TaskID] = {}
        self._bars = RichProgress(
            TextColumn("{task.description:<20}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.refresh()
        self._bars.stop()

    def show(self, counts: dict[str, tuple[int, int]]) -> None:
        """Move the bars; draw them if the last drawing is long enough ago."""
        for name, (count, total) in counts.items():
            if name not in self._places:
                self._places[name] = self._bars.add_task(name, total=total)
            self._bars.update(self._places[name], completed=min(count, total), total=total)
        now_ms = self._clock.now_ms()
        if now_ms - self._last_ms >= 1_000 // DRAWS_A_SECOND:
            self._last_ms = now_ms
            self._bars.refresh()

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._bars.console.print(text, highlight=False, markup=False)
