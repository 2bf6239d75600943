"""The cron entries of a partition: by name and by time."""

from __future__ import annotations

import json
import random

from dejaqueue.engine.commands import Firing
from dejaqueue.engine.schedule import NEVER, Planned, Schedule


def test_the_first_to_wake_comes_first() -> None:
    schedule = Schedule()
    for name, wake_ms in (("c", 30), ("a", 10), ("b", 10), ("never", NEVER)):
        schedule.put(name, "{}", wake_ms, wake_ms)
    assert schedule.next_wake_ms() == 10
    assert schedule.due(9, 9) == []
    assert schedule.due(10, 9) == ["a", "b"]
    assert schedule.due(99, 9) == ["a", "b", "c"]
    assert schedule.due(99, 1) == ["a"]
    assert schedule.due(99, 9) == ["a", "b", "c"]  # asking changes nothing
    schedule.fired(Firing("a", 40, 35, 2), 100)
    assert schedule.by_name["a"] == Planned("{}", 40, 35, 102)
    schedule.fired(Firing("b", NEVER, NEVER, -1), 200)
    assert schedule.by_name["b"].last_sequence == -1
    assert schedule.next_wake_ms() == 30
    assert schedule.drop("c")
    assert not schedule.drop("c")
    assert schedule.due(99, 9) == ["a"]
    schedule.fired(Firing("gone", 1, 1, 1), 1)
    assert len(schedule) == 3


def test_a_change_keeps_place_and_last_message() -> None:
    schedule = Schedule()
    schedule.put("a", "1", 5, 5)
    schedule.put("b", "1", 5, 5)
    schedule.fired(Firing("a", 9, 9, 0), 7)
    schedule.put("a", "2", 6, 6)
    assert list(schedule.by_name) == ["a", "b"]
    assert schedule.by_name["a"] == Planned("2", 6, 6, 7)


def test_any_changes_leave_it_whole__and_it_comes_back_from_values() -> None:
    dice = random.Random(3)
    schedule = Schedule()
    for _ in range(3_000):
        name, wake_ms = f"e{dice.randint(0, 40)}", dice.choice([NEVER, dice.randint(0, 60)])
        match dice.randint(0, 3):
            case 0:
                schedule.put(name, name, wake_ms, wake_ms)
            case 1:
                schedule.fired(Firing(name, wake_ms, wake_ms, dice.randint(-1, 3)), 50)
            case 2:
                schedule.drop(name)
            case 3:
                schedule.due(dice.randint(0, 60), dice.randint(1, 9))
        assert schedule.is_whole()
        wakes = [planned.wake_ms for planned in schedule.by_name.values() if planned.wake_ms >= 0]
        assert schedule.next_wake_ms() == min(wakes, default=None)
    again = Schedule.from_values(json.loads(json.dumps(schedule.to_values())))
    assert again.to_values() == schedule.to_values()
    assert again.is_whole()
