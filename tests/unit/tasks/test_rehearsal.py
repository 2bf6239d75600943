"""Covers: a year of schedules, delays and retries runs in a test, each call at its time.

Not covered: what a call does (test_execution.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from tests.unit.tasks.stage import stage

BERLIN = ZoneInfo("Europe/Berlin")


def test_a_year_of_a_schedule__over_both_changes_of_daylight_saving() -> None:
    seen: list[datetime] = []
    with stage() as on:
        task = on.app.add(lambda: seen.append(on.clock.now()), "report", {})
        worker = on.rehearse()
        task.every("0 9 * * MON", "Europe/Berlin").send()
        assert worker.advance(timedelta(days=365)) == 52
    local = {(one.astimezone(BERLIN).weekday(), one.astimezone(BERLIN).hour) for one in seen}
    assert local == {(0, 9)}
    assert {one.hour for one in seen} == {7, 8}


def test_calls_that_send_calls_run_in_their_order() -> None:
    seen: list[tuple[str, int]] = []
    with stage() as on:
        start_ms = on.clock.now_ms()

        def note(name: str) -> None:
            seen.append((name, (on.clock.now_ms() - start_ms) // 1_000))
            if name == "first":
                task.in_(30).send("second")
                task.send("at once")

        task = on.app.add(note, "note", {})
        worker = on.rehearse()
        task.in_(10).send("first")
        task.in_(20).send("between")
        assert worker.advance(timedelta(minutes=1)) == 4
        assert on.clock.now_ms() == start_ms + 60_000
    assert seen == [("first", 10), ("at once", 10), ("between", 20), ("second", 40)]


def test_failures_are_kept_for_the_test_to_see() -> None:
    def fails() -> None:
        raise ValueError("no")

    with stage() as on:
        on.app.add(fails, "fails", {"retries": 1, "backoff": 5}).send()
        worker = on.rehearse()
        worker.advance(timedelta(minutes=1))
        assert [str(one) for one in worker.failures] == ["no", "no"]
