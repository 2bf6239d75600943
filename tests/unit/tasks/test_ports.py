"""Covers: tasks and applications have all that their ports name.

Not covered: the types, which mypy compares.
"""

from __future__ import annotations

from dejaqueue.tasks import Tasks
from dejaqueue.tasks.ports import Application, CalledTask


def members(port: type) -> set[str]:
    return {*port.__annotations__, *(name for name in vars(port) if name[0] != "_")}


def test_an_application_and_a_task_fit_their_ports() -> None:
    app = Tasks()
    task = app.add(lambda: None, "t", {})
    for port, thing in ((Application, app), (CalledTask, task)):
        assert len(members(port)) >= 6
        assert members(port) - {*dir(type(thing)), *vars(thing)} == set()
