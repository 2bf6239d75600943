"""Covers: options of tasks, and what sending one puts into the broker: time, key, group, schedule.

Not covered: running them (test_execution.py); handles (test_handle.py).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dejaqueue.errors import BadRequest, DuplicateKey
from dejaqueue.tasks import Tasks
from tests.unit.tasks.stage import stage


def work(n: int = 0, tenant: str = "a") -> int:
    return n + 1


def test_a_task_is_called_as_its_function_is() -> None:
    task = Tasks().add(work, "", {})
    assert task(4) == 5
    assert task.name == f"{__name__}.work"
    assert repr(task) == f"<Task {__name__}.work of tasks>"


def test_a_message_says_the_task_and_its_arguments() -> None:
    with stage() as on:
        handle = on.app.add(work, "work", {}).send(3, tenant="b")
        found = on.client.get("tasks", id=handle.id)
        assert found is not None
        assert found.json() == {"task": "work", "args": {"n": 3, "tenant": "b"}}


def test_a_handle_is_made_again_of_its_id() -> None:
    with stage() as on:
        task = on.app.add(work, "work", {})
        handle = task.in_(60).send(3)
        again = task.handle(handle.id)
        assert (again, again.state()) == (handle, "scheduled")


def test_the_message_of_a_call_is_what_sending_it_sends() -> None:
    with stage() as on:
        task = on.app.add(work, "work", {"topic": "fair", "group": lambda n, tenant: tenant})
        task.send(3)
        on.client.send(**task.message(3))
        with pytest.raises(BadRequest, match="argument"):
            task.message("three")
        first, second = on.client.peek("fair").select(["payload", "group"]).to_pylist()
        assert first == second


def test_times() -> None:
    with stage() as on:
        task = on.app.add(work, "work", {})
        now_ms = on.clock.now_ms()
        later = task.in_(timedelta(minutes=1)).send()
        exact = task.at(now_ms + 5).send()
        for handle, due_ms in ((later, now_ms + 60_000), (exact, now_ms + 5)):
            found = on.client.get("tasks", id=handle.id)
            assert found is not None
            assert found.due_ms == due_ms


def test_of_a_key_there_is_one_that_waits() -> None:
    with stage() as on:
        task = on.app.add(work, "work", {})
        first = task.with_key("k").in_(60).send(1)
        again = task.with_key("k").in_(90).send(2)
        assert (again.id, first.is_new, again.is_new) == (first.id, True, False)


def test_unique__by_arguments_and_by_a_function() -> None:
    with stage() as on:
        plain = on.app.add(work, "plain", {"unique": True})
        assert plain.send(1).id == plain.send(1).id != plain.send(2).id
        by = on.app.add(work, "by", {"unique": lambda n, tenant: tenant})
        assert by.send(1, "x").id == by.send(2, "x").id != by.send(1, "y").id
        with pytest.raises(DuplicateKey):
            plain.send_many([(1,)])


def test_many_at_once() -> None:
    with stage() as on:
        task = on.app.add(work, "work", {})
        handles = task.send_many([(n,) for n in range(5)])
        assert len({one.id for one in handles}) == 5
        assert task.send_many([]) == []
        assert on.client.stats("tasks").scheduled == 5


def test_priorities_and_groups_have_topics_of_their_kind() -> None:
    with stage() as on:
        urgent = on.app.add(work, "urgent", {"topic": "urgent", "priority": 1})
        fair = on.app.add(work, "fair", {"topic": "fair", "group": lambda n, tenant: tenant})
        found = on.client.get("urgent", id=urgent.send().id)
        assert found is not None
        assert found.priority == 1
        found = on.client.get("fair", id=fair.send(1, "acme").id)
        assert found is not None
        assert found.group == "acme"
        assert [on.client.topic(t).kind for t in ("urgent", "fair")] == ["priority", "fair"]
        with pytest.raises(BadRequest, match="priority and group of other"):
            on.app.add(work, "other", {"topic": "urgent"})


def test_a_schedule_is_an_entry__put_again_it_is_changed() -> None:
    with stage() as on:
        task = on.app.add(work, "work", {})
        schedule = task.every("0 9 * * *", "Europe/Berlin").send(7)
        assert schedule.entry().cron == "0 9 * * *"
        task.every("0 8 * * *", "Europe/Berlin").send(7)
        assert [one.cron for one in on.client.cron("tasks.cron").entries()] == ["0 8 * * *"]
        other = task.every(timedelta(minutes=5)).with_key("often").send(1)
        assert (other.name, other.entry().every_ms) == ("often", 300_000)


def test_a_firing_has_the_priority_and_the_group_of_its_task() -> None:
    with stage() as on:
        urgent = on.app.add(work, "urgent", {"topic": "urgent", "priority": 1})
        assert urgent.every("0 9 * * *").send().entry().priority == 1
        fair = on.app.add(work, "fair", {"topic": "fair", "group": lambda n, tenant: tenant})
        schedule = fair.every("0 9 * * *").send(1, "acme")
        assert schedule.entry().group == "acme"
        fired = on.client.get("fair.cron", id=on.client.cron("fair.cron").run("fair"))
        assert fired is not None
        assert fired.group == "acme"


def test_a_schedule_of_a_unique_task_is_refused() -> None:
    with stage() as on:
        once = on.app.add(work, "once", {"unique": True})
        with pytest.raises(BadRequest, match="every: a task without unique=.*got: .once"):
            once.every("0 9 * * *").send(1)


def test_in_a_loop() -> None:
    with stage() as on:
        task = on.app.add(work, "work", {})

        async def main() -> None:
            await task.send_async(1)
            await task.in_(60).send_async(1)
            await task.every("0 9 * * *").send_async(1)

        asyncio.run(main())
        assert on.client.stats("tasks").scheduled == 2


def test_a_test_runs_it_here_through_json_and_middleware() -> None:
    seen: list[Any] = []

    def doubled(n: int) -> int:
        seen.append(n)
        return 2 * n

    assert Tasks().add(doubled, "d", {"result": 60}).test(4) == 8
    assert seen == [4]
    with pytest.raises(BadRequest, match="argument n of task d"):
        Tasks().add(doubled, "d", {}).test("x")
