"""Covers: middleware that overrides nothing changes nothing.

Not covered: when it is called (test_execution.py).
"""

from __future__ import annotations

from dejaqueue.tasks import Middleware, Tasks


def test_it_does_nothing() -> None:
    app = Tasks(middleware=[Middleware()])
    app.use(Middleware())

    def work(n: int) -> int:
        return n + 1

    assert app.add(work, "work", {}).test(1) == 2
