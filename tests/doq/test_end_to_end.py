"""What DOQ's own end-to-end tests ask of a server, in our words: six uses of it, start to end.

Not covered: each call by itself (tests/unit/http/doq), a restart (tests/cli/test_doq.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.clock import SystemClock
from tests.doq.calls import Call, Side
from tests.patience import PATIENCE_SECONDS

Q = "/API/v1/queues/q"
GROUPS = ("one", "one", "one", "one", "two", "two", "three", "four")


def seconds() -> int:
    return SystemClock().now_ms() // 1_000


def make(side: Side, kind: str = "delayed") -> None:
    settings = {"strategy": "ROUND_ROBIN"} if kind == "fair" else {}
    made = side.call(
        Call("POST", "/API/v1/queues", {"name": "q", "type": kind} | {"settings": settings})
    )
    assert (made[0], made[1]["status"], made[1]["type"]) == (200, "CREATED", kind)


def put(side: Side, content: str, priority: int = 10, group: str = "default") -> None:
    body = {"content": content, "priority": priority, "group": group}
    status, found = side.call(Call("POST", f"{Q}/messages", body, content))
    assert (status, found["status"]) == (200, "ENQUEUED")
    assert (found["content"], found["priority"]) == (content, priority)


def take(side: Side, *, ack: bool = True) -> dict[str, Any] | None:
    """The next message; None if there is none."""
    status, found = side.call(Call("GET", f"{Q}/messages?ack={str(ack).lower()}"))
    if status == 400:
        return None
    assert (status, found["status"]) == (200, "DEQUEUED")
    answer: dict[str, Any] = found
    return answer


def all_of(side: Side) -> list[str]:
    """The contents of all that is due, in order."""
    return [found["content"] for found in iter(lambda: take(side), None)]


@pytest.fixture(params=["ours", "theirs"])
def side(request: pytest.FixtureRequest) -> Side:
    found: Side = request.getfixturevalue(request.param)
    return found


def test_customers_of_a_fair_queue_take_turns(side: Side) -> None:
    make(side, "fair")
    for number, group in enumerate(GROUPS):
        put(side, str(number), group=group)
    assert all_of(side) == ["0", "4", "6", "7", "1", "5", "2", "3"]


def test_messages_of_one_priority_come_as_they_were_sent(side: Side) -> None:
    make(side)
    for number, group in enumerate(GROUPS):
        put(side, str(number), group=group)
    assert all_of(side) == [str(number) for number in range(8)]


def test_low_priorities_come_first(side: Side) -> None:
    make(side)
    priorities = (123, 523, 35, 7_863, 12, 4, 1, 4_555)
    for priority in priorities:
        put(side, str(priority), priority)
    assert all_of(side) == [str(priority) for priority in sorted(priorities)]


def test_a_time_as_priority_is_waited_for(side: Side) -> None:
    make(side)
    now = seconds()
    put(side, "last", now + 3)
    put(side, "then", now + 2)
    put(side, "at once", 10)
    seen: list[str] = []
    while len(seen) < 3:
        assert seconds() < now + PATIENCE_SECONDS
        found = take(side)
        if found is not None:
            assert found["priority"] <= seconds()
            seen.append(found["content"])
    assert seen == ["at once", "then", "last"]


def test_what_is_given_back_comes_again__and_what_is_acked_does_not(side: Side) -> None:
    make(side)
    put(side, "a")
    assert take(side, ack=False) is not None
    assert take(side) is None
    assert side.call(Call("POST", f"{Q}/messages/{{a}}/nack", {"priority": 11}))[0] == 200
    again = take(side, ack=False)
    assert again is not None
    assert (again["id"], again["priority"]) == ("a", 11)
    assert side.call(Call("POST", f"{Q}/messages/{{a}}/ack"))[0] == 200
    assert side.call(Call("POST", f"{Q}/messages/{{a}}/ack"))[0] == 400
    assert take(side) is None


def test_a_new_priority_is_a_new_place(side: Side) -> None:
    make(side)
    for content, priority in (("a", 1), ("b", 2), ("c", 3)):
        put(side, content, priority)
    path = f"{Q}/messages/{{c}}/priority"
    status, found = side.call(Call("PUT", path, {"priority": 0}))
    assert (status, found) == (200, {"status": "UPDATED", "id": "c", "priority": 0})
    assert all_of(side) == ["c", "a", "b"]
