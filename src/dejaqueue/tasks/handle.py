"""Handles: what a sender holds of a call that is on its way, and of a schedule.

Room: tasks. Asks the broker each time; keeps nothing but names.
Holds: what has returned is durable; a call that is at work cannot be moved or cancelled any more,
and the status says so.
See: task.py, which makes them; rule 9 for moves and cancels.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from dejaqueue.clock import Wake
from dejaqueue.errors import TryLater
from dejaqueue.model import RowStatus
from dejaqueue.schema.cron import CronEntry
from dejaqueue.tasks.ports import CalledTask
from dejaqueue.tasks.results import ResultMissing

R = TypeVar("R")

LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.005, 0.5
"""Between two looks for a result: twice as long each time."""


class ResultPending(TryLater):
    """The call has not ended in time; it goes on."""


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """A call that was sent.

    Attributes:
        task: what is called.
        topic: where its message is.
        id: of its message.
        is_new: False = a call of the same key was waiting already, and this is that one.
    """

    task: CalledTask
    topic: str
    id: int
    is_new: bool = True

    def state(self) -> str:
        """Where it is now.

        Returns:
            `scheduled` (its time is to come), `ready` (a worker gets it next), `running`,
            `done` or `failed` (as its kept result says), or `gone`: it ended, or was cancelled,
            and nothing is kept of it.
        """
        app = self.task.app
        found = app.client.get(self.topic, id=self.id)
        if found is not None and found.state != "dead":
            if found.state == "scheduled":
                return "scheduled" if found.due_ms > app.clock.now_ms() else "ready"
            return "running" if found.state == "leased" else found.state
        outcome = app.results.get(app.client, self.topic, self.id, app.clock.now_ms())
        if outcome is None:
            return "failed" if found is not None else "gone"
        return "done" if outcome.failure is None else "failed"

    def move(
        self,
        *,
        at: datetime | int | None = None,
        in_: timedelta | float | None = None,
        by: timedelta | float | None = None,
    ) -> RowStatus:
        """Give it another time: an instant, a delay from now, or a shift. One of the three.

        Returns:
            OK; LEASED: it is at work, and stays as it is; NOT_FOUND: it has ended.
        """
        return self.task.app.client.move(self.topic, id=self.id, due=at, delay=in_, by=by)

    def cancel(self) -> RowStatus:
        """Take it back: OK; LEASED: it is at work, and goes on; NOT_FOUND: it has ended."""
        return self.task.app.client.cancel(self.topic, id=self.id)

    def result(self, timeout: timedelta | float = 60) -> R:
        """What its function returned; waits for it, and asks again and again.

        Raises:
            TaskFailed: it is dead; has the error and its traceback.
            ResultMissing: nothing is kept of this task, or no more, or it was cancelled.
            ResultPending: it has not ended in time.
        """
        clock, looks = self.task.app.clock, _looks()
        end_us = clock.now_us() + _us(timeout)
        while (found := self._look()) is None:
            self._check_time(clock.now_us(), end_us, timeout)
            clock.wait_until(min(clock.now_us() + next(looks), end_us), Wake())
        return found[0]

    async def result_async(self, timeout: timedelta | float = 60) -> R:
        """As `result`, for asyncio; `await handle` is the same."""
        clock, looks = self.task.app.clock, _looks()
        end_us = clock.now_us() + _us(timeout)
        while (found := await asyncio.to_thread(self._look)) is None:
            self._check_time(clock.now_us(), end_us, timeout)
            # tidy: allow sleep, because nothing rings when a result is kept (ADR 42)
            await asyncio.sleep(next(looks) / 1e6)
        return found[0]

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def _check_time(self, now_us: int, end_us: int, timeout: timedelta | float) -> None:
        if now_us >= end_us:
            raise ResultPending(f"call {self.id} of {self.task.name} has not ended in {timeout} s")

    def _look(self) -> tuple[R] | None:
        """Its result, in a tuple; None = it has not ended."""
        app = self.task.app
        # In this order: a call that ends between the two looks has its result by the second.
        live = app.client.get(self.topic, id=self.id)
        outcome = app.results.get(app.client, self.topic, self.id, app.clock.now_ms())
        if outcome is not None:
            if outcome.failure is not None:
                raise outcome.failure
            return (self.task.signature.result(outcome.value),)
        if live is None or live.state == "dead":
            raise ResultMissing(
                f"nothing is kept of call {self.id} of {self.task.name}: it was cancelled, its "
                "result's life is over, or the task keeps none (result=)"
            )
        return None


def _looks() -> Generator[int, None, None]:
    """Microseconds until each next look."""
    pause_s = LOOK_SECONDS_MIN
    while True:
        yield int(pause_s * (0.75 + random.random() / 4) * 1e6)
        pause_s = min(2 * pause_s, LOOK_SECONDS_MAX)


def _us(length: timedelta | float) -> int:
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    return int(seconds * 1e6)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Something that is called again and again: an entry of a cron topic.

    Attributes:
        task: what is called.
        topic: the cron topic.
        name: of the entry.
    """

    task: CalledTask
    topic: str
    name: str

    def entry(self) -> CronEntry:
        """The entry as it is, with the time it fires next. Raises BadRequest if it is removed."""
        return self.task.app.client.cron(self.topic).get(self.name)

    def pause(self) -> None:
        """It is not called until it is resumed."""
        self.task.app.client.cron(self.topic).pause(self.name)

    def resume(self) -> None:
        """It goes on from now; what passed meanwhile was not missed."""
        self.task.app.client.cron(self.topic).resume(self.name)

    def cancel(self) -> None:
        """It is called no more; what has fired already is not taken back."""
        self.task.app.client.cron(self.topic).drop(self.name)
