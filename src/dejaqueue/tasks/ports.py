"""What the parts of a task know of it and of its application, without knowing their modules.

Room: tasks. A contract.
Holds: attempts and handles name a task, and a task its application; these names lead here, and not
in a circle.
See: task.py and app.py, which are these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dejaqueue.client import Client
from dejaqueue.clock import Clock
from dejaqueue.tasks.options import TaskOptions
from dejaqueue.tasks.results import Results
from dejaqueue.tasks.signature import Signature


class CalledTask(Protocol):
    """A task, as an attempt and a handle see it."""

    app: Application
    name: str
    options: TaskOptions
    function: Callable[..., Any]
    is_async: bool
    signature: Signature


class Application(Protocol):
    """An application, as its tasks and what runs them see it; `middleware` is a list of Middleware,
    which knows attempts."""

    name: str
    clock: Clock
    results: Results
    middleware: list[Any]

    @property
    def client(self) -> Client:
        """The client of this process."""
        ...

    def find(self, name: str) -> Any:
        """The task of this name; None if there is none."""
        ...

    def topics(self) -> dict[str, str]:
        """The topics that workers take calls from, and the kind of each."""
        ...

    def create(self, task: Any) -> str:
        """The topic of a task; made if it is not there."""
        ...

    def create_cron(self, task: Any) -> str:
        """The topic of the schedules of a task; made if it is not there."""
        ...

    def create_all(self) -> None:
        """Make all topics that workers need and that are not there."""
        ...
