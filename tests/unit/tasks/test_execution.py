"""Covers: messages become calls, and calls their fate: acks, retries, dead letters, results.

Not covered: worker processes (worker/); times (test_rehearsal.py).
"""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import dejaqueue
from dejaqueue.tasks import Middleware, Reject, Tasks, TimeLimitExceeded, current
from dejaqueue.tasks.attempt import Attempt
from dejaqueue.tasks.execution import Execution
from tests.patience import until
from tests.unit.tasks.stage import Stage, stage


def letters(on: Stage, count: int = 1) -> list[dict[str, str]]:
    found = []
    # The first letter makes its topic, a moment later.
    until(lambda: "tasks.dead" in {topic.name for topic in on.client.topics()})
    for letter in on.client.consume("tasks.dead", max_messages=count):
        found.append(letter.headers)
        letter.ack()
    return found


def test_a_function_that_returns_is_done() -> None:
    seen: list[Any] = []

    def work(n: int) -> None:
        attempt = current()
        assert attempt is not None
        seen.append((n, attempt.number, attempt.topic))

    with stage() as on:
        handle = on.app.add(work, "work", {}).send(3)
        assert on.rehearse().run_due() == 1
        assert seen == [(3, 1, "tasks")]
        assert handle.state() == "gone"
        assert on.client.stats("tasks").acked == 1


def test_one_that_raises_is_tried_again_and_then_dead() -> None:
    def work() -> None:
        raise ValueError("no address")

    with stage() as on:
        on.app.add(work, "work", {"retries": 2, "backoff": 60}).send()
        worker = on.rehearse()
        assert worker.run_due() == 1
        assert worker.advance(timedelta(seconds=59)) == 0
        assert worker.advance(timedelta(seconds=1)) == 1
        assert worker.advance(timedelta(seconds=120)) == 1
        [letter] = letters(on)
        assert letter["dejaq-dead-attempts"] == "3"
        assert letter["dejaq-dead-reason"].startswith("ValueError: no address\n")
        assert "in work" in letter["dejaq-dead-reason"]


def test_a_coroutine_function_runs_too() -> None:
    seen = []

    async def work(n: int) -> None:
        await asyncio.sleep(0)
        seen.append(n)

    with stage() as on:
        on.app.add(work, "work", {}).send(3)
        on.rehearse().run_due()
    assert seen == [3]


def test_a_call_that_nobody_knows_waits_for_a_worker_that_does() -> None:
    with stage() as on:
        on.app.add(lambda: None, "known", {}).send()
        on.client.send("tasks", json={"task": "of tomorrow", "args": {}})
        on.rehearse().run_due()
        assert on.client.stats("tasks").scheduled == 1
        assert on.client.stats("tasks").dead == 0


@pytest.mark.parametrize(
    "payload", [b"no json", b'"text"', b"{}", b'{"task": "work", "args": {"n": "x"}}']
)
def test_what_is_no_call_is_dead_at_once(payload: bytes) -> None:
    def work(n: int) -> None:
        pytest.fail("it is no call")

    with stage() as on:
        on.app.add(work, "work", {"retries": 5})
        worker = on.rehearse()
        on.client.send("tasks", payload)
        worker.run_due()
        [letter] = letters(on)
        assert letter["dejaq-dead-attempts"] == "1"


def test_a_result_that_is_too_large_is_an_error_and_not_tried_again() -> None:
    calls = []

    def work() -> str:
        calls.append(1)
        return "x" * 100_000

    with stage() as on:
        on.app.add(work, "work", {"retries": 5, "result": 60}).send()
        on.rehearse().advance(timedelta(days=1))
        [letter] = letters(on)
        assert "payload" in letter["dejaq-dead-reason"]
    assert len(calls) == 1


class Noting(Middleware):
    def __init__(self, name: str, notes: list[str], raises: str = "") -> None:
        self.name, self.notes, self.raises = name, notes, raises

    def _note(self, what: str) -> None:
        self.notes.append(f"{self.name} {what}")
        if self.raises == what:
            raise ValueError(f"{self.name} raised in {what}")

    def before(self, attempt: Attempt) -> None:
        self._note("before")

    def after(self, attempt: Attempt, result: object) -> None:
        self._note("after")

    def error(self, attempt: Attempt, error: BaseException) -> None:
        self._note("error")


@pytest.mark.parametrize(
    ("raises", "said"),
    [
        ("", ["a before", "b before", "work", "b after", "a after"]),
        ("before", ["a before", "b before", "b error", "a error"]),
        ("after", ["a before", "b before", "work", "b after", "b error", "a error"]),
        ("error", ["a before", "b before", "work", "b after", "a after"]),
    ],
)
def test_middleware_is_called_around_the_function(raises: str, said: list[str]) -> None:
    notes: list[str] = []
    app = Tasks(middleware=[Noting("a", notes), Noting("b", notes, raises)])
    task = app.add(lambda: notes.append("work"), "work", {})
    if raises in {"before", "after"}:
        with pytest.raises(ValueError, match=f"b raised in {raises}"):
            task.test()
    else:
        task.test()
    assert notes == said


def test_middleware_hears_of_errors__and_its_own_in_error_is_only_logged() -> None:
    notes: list[str] = []
    app = Tasks(middleware=[Noting("a", notes), Noting("b", notes, "error")])

    def work() -> None:
        raise Reject("no")

    with pytest.raises(Reject):
        app.add(work, "work", {}).test()
    assert notes == ["a before", "b before", "b error", "a error"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_that_takes_too_long_hears_of_it(is_async: bool) -> None:
    felt = []

    def work() -> None:
        pause = threading.Event()
        try:
            while True:
                pause.wait(0.001)
        except TimeLimitExceeded:
            felt.append(1)
            raise

    async def work_async() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            felt.append(1)
            raise

    task = Tasks().add(work_async if is_async else work, "work", {"timeout": 0.05})
    with pytest.raises(TimeLimitExceeded, match=r"work: at most 0\.05 s"):
        task.test()
    assert felt == [1]


def test_in_a_loop_both_kinds_of_function_run() -> None:
    seen = []

    async def waits(n: int) -> int:
        seen.append(n)
        return n

    def plain(n: int) -> None:
        seen.append(n)
        raise ValueError("no")

    async def main() -> None:
        async with dejaqueue.open_async("memory:") as client:
            await client.create_topic("tasks")
            app = Tasks()
            app.add(waits, "waits", {})
            app.add(plain, "plain", {})
            for name in ("waits", "plain", "unknown"):
                await client.send("tasks", json={"task": name, "args": {"n": len(name)}})
            execution = Execution(app)
            work = partial(execution.run_async, "tasks")
            await client.run("tasks", work, concurrency=2, max_messages=3)
            assert (await client.stats("tasks")).acked == 1
            assert (await client.stats("tasks")).nacked == 2

    asyncio.run(main())
    assert sorted(seen) == [5, 5]
