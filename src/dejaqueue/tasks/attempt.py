"""One attempt at a task: which call it is, what the function may say of it, and what becomes of it.

Room: tasks. Values and the function's own words; runs nothing (execution.py does).
Holds: an attempt is done, comes again after a delay, or is dead; there is no fourth.
See: task.py for the options that decide; docs/guides/tasks.md, Failures.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dejaqueue.errors import DejaQError
from dejaqueue.tasks.ports import CalledTask

LOSSES_MAX = 10
"""Attempts beyond the retries that may end without a word (their worker was killed) before the
task is dead: it may be what kills its workers."""


class Retry(Exception):
    """Raised by a task's function: try again, whatever its retries say.

    Args:
        delay: after so long, seconds or a timedelta; None = as its backoff says.
        reason: why, for the log and the dead letter.
    """

    def __init__(self, delay: timedelta | float | None = None, reason: str = "") -> None:
        super().__init__(reason or "the task asked for another attempt")
        self.delay = delay


class Reject(Exception):
    """Raised by a task's function: never try again. It becomes a dead letter."""


class TimeLimitExceeded(DejaQError):
    """Raised in a function that works for longer than its `timeout`."""


@dataclass(slots=True)
class Attempt:
    """One attempt at a call.

    Attributes:
        task: what is called.
        id: of the call: its message's id; -1 in `task.test`.
        topic: of its message.
        number: which attempt this is, from 1; an attempt that was lost with its worker counts.
        due_ms: when it was due, UTC milliseconds.
        headers: of its message.
        args, kwargs: of the function.
        notes: for middleware, to keep something from `before` until `after` or `error`.
    """

    task: CalledTask
    id: int = -1
    topic: str = ""
    number: int = 1
    due_ms: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """True if the task is dead when this attempt fails."""
        return self.number > self.task.options.retries


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of an attempt.

    Attributes:
        is_done: the function returned.
        is_dead: it is never tried again; a dead letter says why.
        delay_s: otherwise: seconds until the next attempt.
        error: what was raised.
    """

    is_done: bool = False
    is_dead: bool = False
    delay_s: float = 0
    error: BaseException | None = None


def fate_of(attempt: Attempt, error: BaseException) -> Fate:
    """What becomes of an attempt whose function raised this."""
    options = attempt.task.options
    if isinstance(error, Reject):
        return Fate(is_dead=True, error=error)
    if isinstance(error, Retry):
        delay = error.delay
        if delay is None:
            return Fate(delay_s=options.delay_s(attempt.number), error=error)
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        return Fate(delay_s=seconds, error=error)
    if attempt.is_last:
        return Fate(is_dead=True, error=error)
    return Fate(delay_s=options.delay_s(attempt.number), error=error)


attempt_now: ContextVar[Attempt | None] = ContextVar("dejaq_attempt", default=None)


def current() -> Attempt | None:
    """The attempt that this function is called for; None outside of a task."""
    return attempt_now.get()
