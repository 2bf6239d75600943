"""Middleware: what a program does around each of its tasks.

Room: tasks. A class to inherit from.
Holds: `before` is called in the order in which middleware was added, `after` and `error` in the
other; what one raises in `before` or `after` is what the function raised; what `error` raises is
logged.
See: telemetry.py for one; execution.py, which calls it.
"""

from __future__ import annotations

from dejaqueue.tasks.attempt import Attempt


class Middleware:
    """Does nothing; override what you need. Called on the thread, or in the loop, of the task."""

    def before(self, attempt: Attempt) -> None:
        """Its function is about to be called."""

    def after(self, attempt: Attempt, result: object) -> None:
        """Its function has returned this."""

    def error(self, attempt: Attempt, error: BaseException) -> None:
        """Its function, or other middleware, has raised this."""
