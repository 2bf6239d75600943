"""Options of a task: how it is run, and what it needs of its topic.

Room: tasks. Values only.
Holds: what `check` lets through has every value in its limits.
See: task.py; docs/guides/tasks.md, Failures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dejaqueue.errors import BadRequest
from dejaqueue.tasks.results import check_life

BACKOFF_S, BACKOFF_S_MAX = 1.0, 3_600.0
"""Wait before the second attempt; each further one is twice as long, and none is longer."""
RETRIES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task is run.

    Attributes:
        topic: where its messages are.
        retries: attempts after the first one that failed.
        backoff: seconds before the second attempt, twice as long before each further one, an hour
            at most; or a function of the number of the attempt that failed.
        timeout: seconds after which TimeLimitExceeded is raised in the function; None = never.
        timeout_hard: seconds after which its process is killed; None = never.
        unique: one call with the same arguments at a time waits or is at work; or a function of
            the arguments that gives what must be unique.
        priority: 0 is most urgent; its topic is one of priorities.
        group: a text, or a function of the arguments that gives one; its topic is a fair one.
        result: seconds for which a result is kept; None = none is kept.
    """

    topic: str
    retries: int = 0
    backoff: float | Callable[[int], float] = BACKOFF_S
    timeout: float | None = None
    timeout_hard: float | None = None
    unique: bool | Callable[..., str] = False
    priority: int | None = None
    group: str | Callable[..., str] = ""
    result: float | None = None

    def check(self) -> TaskOptions:
        """Return self, or raise BadRequest."""
        if isinstance(self.retries, bool) or not 0 <= self.retries <= RETRIES_MAX:
            raise BadRequest("retries", f"a whole number from 0 to {RETRIES_MAX}", self.retries)
        for name in ("timeout", "timeout_hard"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadRequest(name, "a number of seconds above 0, or None", value)
        if self.priority is not None and self.group:
            raise BadRequest("group", "either priority or group", self.group)
        check_life(self.result)
        return self

    @property
    def kind(self) -> str:
        """Kind of topic that it needs."""
        return "fair" if self.group else "timeline" if self.priority is None else "priority"

    def delay_s(self, number: int) -> float:
        """Seconds from the failure of this attempt until the next one."""
        if callable(self.backoff):
            return max(float(self.backoff(number)), 0.0)
        return min(self.backoff * 2.0 ** min(number - 1, 30), BACKOFF_S_MAX)
