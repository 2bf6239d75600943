"""Covers: how an application knows its tasks, its topics and its client.

Not covered: sending (test_task.py), running (test_execution.py).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.tasks import Middleware, Tasks
from tests.unit.tasks.stage import stage


def test_both_forms_of_the_decorator() -> None:
    app = Tasks(name="mails")

    @app.task
    def plain() -> None:
        """Says so."""

    @app.task(name="other", retries=2, backoff=timedelta(seconds=9), topic="slow")
    async def other() -> None: ...

    assert plain.__doc__ == "Says so."
    assert (plain.options.topic, plain.is_async) == ("mails", False)
    assert (other.name, other.options.backoff, other.is_async) == ("other", 9.0, True)
    assert app.find("other") is other
    assert app.find("nothing") is None
    assert app.topics() == {
        "mails": "timeline", "mails.cron": "cron", "slow": "timeline", "slow.cron": "cron",
    }  # fmt: skip
    assert repr(app) == "<Tasks mails at dejaq://localhost:7464, 2 tasks>"


def test_names_and_options_are_checked() -> None:
    app = Tasks()
    app.add(test_both_forms_of_the_decorator, "one", {})
    with pytest.raises(BadRequest, match="one that no other task has"):
        app.add(test_both_forms_of_the_decorator, "one", {})
    with pytest.raises(BadRequest, match="option of a task: one of topic, retries"):
        app.add(test_both_forms_of_the_decorator, "two", {"retry": 1})  # type: ignore[typeddict-unknown-key]


def test_topics_are_made_once__and_as_an_operator_altered_them() -> None:
    with stage() as on:
        task = on.app.add(lambda: None, "t", {})
        on.client.create_topic("tasks", lease_ms=5_000)
        on.app.create_all()
        on.app.create(task)
        assert on.client.topic("tasks").lease_ms == 5_000


def test_a_topic_of_another_kind_is_refused() -> None:
    with stage() as on:
        on.client.create_topic("tasks", kind="fair")
        task = on.app.add(lambda: None, "t", {})
        with pytest.raises(BadRequest, match="kind of topic tasks: timeline"):
            task.send()


def test_a_client_that_was_given_is_not_closed() -> None:
    with stage() as on:
        with on.app as app:
            app.use(Middleware())
            assert app.client is on.client
        on.client.create_topic("still")
