"""Functions that run at their time: `@app.task`, sent from anywhere, run by `dejaq worker`.

    from dejaqueue.tasks import Tasks

    app = Tasks("dejaq://localhost:7464")

    @app.task(retries=3, backoff=10)
    def remind(name: str) -> None: ...

    remind.send("alice")                      # now
    remind.in_(3600).send("alice")            # in an hour; a handle that can be moved and cancelled

Room: tasks. Built on the client's public names alone; knows no broker, no wire and no journal.
Holds: a task is a message, its arguments JSON; nothing is unpickled; a task that was sent is run at
least once, whatever is killed.
See: app.py, then task.py; worker/ for what runs them; docs/guides/tasks.md.
"""

from dejaqueue.tasks.app import Tasks
from dejaqueue.tasks.attempt import Attempt, Reject, Retry, TimeLimitExceeded, current
from dejaqueue.tasks.handle import Handle, ResultPending, Schedule
from dejaqueue.tasks.middleware import Middleware
from dejaqueue.tasks.rehearsal import Rehearsal
from dejaqueue.tasks.results import ResultMissing, TaskFailed
from dejaqueue.tasks.task import Task

__all__ = [
    "Attempt",
    "Handle",
    "Middleware",
    "Rehearsal",
    "Reject",
    "ResultMissing",
    "ResultPending",
    "Retry",
    "Schedule",
    "Task",
    "TaskFailed",
    "Tasks",
    "TimeLimitExceeded",
    "current",
]
