"""The way of a shard to its topic's home, here or at another broker."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.broker.topic.homes import ASSIGNMENT, Homes, TopicHome
from dejaqueue.broker.topic.peers import HOME
from dejaqueue.errors import BadRequest, Elsewhere, TopicUnknown, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

GIVEN = {"partitions": 2, "consumers": ["x"], "kept": {}}


class Served:
    """What is served here: the first shard of topic t, and nothing of the others."""

    def __init__(self) -> None:
        self.home: TopicHome | None = TopicHome(2, VirtualClock())
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def of(self, name: str) -> Served:
        if name == "t=0-2":
            return self
        if name.startswith("gone"):
            raise TopicUnknown(name)
        raise Elsewhere("it is far", 50, url="" if name.startswith("lost") else "dejaq://far")

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        self.asked.append((url, action, body))
        answer: Future[dict[str, Any]] = Future()
        answer.set_result({"far": True})
        return answer


def test_a_home_that_is_here_is_asked_here() -> None:
    served = Served()
    homes = Homes(served.of, lambda: served)
    assert homes.ask("t=0-2", ASSIGNMENT, GIVEN).result()["targets"] is None
    told = homes.ask("t=1-2", ASSIGNMENT, GIVEN).result()
    assert told == {"targets": {1: "x"}, "is_settled": True}
    assert served.asked == []


def test_a_home_elsewhere_is_asked_there() -> None:
    served = Served()
    homes = Homes(served.of, lambda: served)
    assert homes.ask("far=1-2", ASSIGNMENT, GIVEN).result() == {"far": True}
    body = {"topic": "far=1-2", "about": ASSIGNMENT, "given": GIVEN}
    assert served.asked == [("dejaq://far", HOME, body)]


def test_a_home_that_cannot_be_asked_is_told_by_the_future() -> None:
    served = Served()
    for name, peers in (("lost=1-2", served), ("far=1-2", None)):
        with pytest.raises(Unavailable):
            Homes(served.of, lambda p=peers: p).ask(name, ASSIGNMENT, GIVEN).result()  # type: ignore[misc]
    with pytest.raises(TopicUnknown):
        Homes(served.of, lambda: served).ask("gone=1-2", ASSIGNMENT, GIVEN).result()


@pytest.mark.parametrize(
    "body",
    [
        {"topic": "t", "about": ASSIGNMENT, "given": GIVEN},
        {"topic": 5, "about": ASSIGNMENT, "given": GIVEN},
        {"topic": "t=1-2", "about": "weather", "given": GIVEN},
        {"topic": "t=1-2", "about": ASSIGNMENT, "given": []},
        {"topic": "t=1-2", "about": ASSIGNMENT, "given": {"kept": 5}},
    ],
)
def test_nonsense_is_refused_by_name(body: dict[str, Any]) -> None:
    served = Served()
    with pytest.raises(BadRequest, match=r"^(topic|about|given):"):
        Homes(served.of, lambda: None).hear(body)
