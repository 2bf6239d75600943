"""Batches at the door of a shard: who goes at once, who waits, in which order.

What is given over all shards, among faults: test_home_allotments.py.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.topic.allotment_queue import AllotmentQueue, DurableBacklog, Waiter
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic


class Door:
    """A shard's queue, whose home answers when it is told to."""

    def __init__(self, **limits: int) -> None:
        self.topic = Topic("t", spread=2, partitions=2, **limits)  # type: ignore[arg-type]
        self.allotment = Allotment(Backlog, is_shard=True)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[Future[Any]] = []
        self.seen: list[Any] = []
        self.queue = AllotmentQueue(
            "t=1-2",
            lambda: self.topic,
            self.allotment,
            self,  # type: ignore[arg-type]
            self._learn,
            lambda run: run(),
        )

    def _learn(self) -> Future[DurableBacklog]:
        known: Future[DurableBacklog] = Future()
        known.set_result(DurableBacklog(7, Backlog(2, 20)))
        return known

    def ask(self, shard: str, about: str, given: dict[str, Any]) -> Future[Any]:
        assert shard == "t=1-2"
        self.asked.append((about, given))
        self.answers.append(Future())
        return self.answers[-1]

    def come(self, name: str, rows: int) -> None:
        def send() -> None:
            self.seen.append(name)

        self.queue.admit(Waiter(rows, rows, ("s", "p"), send, self.seen.append))


def test_without_limits_nobody_waits() -> None:
    door = Door()
    door.come("one", 5)
    assert (door.seen, door.asked) == (["one"], [])


def test_what_does_not_fit_waits_for_the_home__and_others_behind_it() -> None:
    door = Door(max_backlog_count=100)
    door.come("one", 5)
    door.come("two", 1)
    given = {"epoch": 7, "serial": 1, "has": [2, 20], "wants": [5, 5]}
    assert (door.seen, door.asked) == ([], [("backlog", given)])
    door.answers[0].set_result({"count": 50, "byte_count": 0})
    assert door.seen == ["one", "two"]
    door.come("three", 40)
    assert door.seen[-1] == "three"
    assert len(door.asked) == 1


def test_an_answer_is_void_once_the_home_has_asked_for_room() -> None:
    door = Door(max_backlog_count=100)
    door.come("one", 5)
    assert door.queue.give_back(Backlog(1, 1)).result(0) == Backlog(1, 19)
    door.answers[0].set_result({"count": 50, "byte_count": 0})
    assert door.allotment.part == Backlog(1, 19)
    assert door.asked[1][1]["serial"] == 3
    assert door.seen == []


def test_rows_of_a_rate_are_fetched_and_used_once() -> None:
    door = Door(producer_rate_max=100)
    door.come("one", 5)
    assert door.asked == [("rate", {"sender": "s", "producer": "p", "rows": 5})]
    door.answers[0].set_result({"rows": 8})
    door.come("two", 3)
    assert door.seen == ["one", "two"]
    door.come("three", 1)
    refusal = ResourceExhausted("too fast", 10)
    door.answers[1].set_exception(refusal)
    assert door.seen[2:] == [refusal]
