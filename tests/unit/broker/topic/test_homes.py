"""The way of a shard to its topic's home, here or at another broker."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.topic.attendance import Presence
from dejaqueue.broker.topic.homes import ASSIGNMENT, ATTENDANCE, BACKLOG, RATE, Homes, TopicHome
from dejaqueue.broker.topic.peers import HOME, SHARD
from dejaqueue.errors import BadRequest, Elsewhere, ResourceExhausted, TopicUnknown, Unavailable
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock

GIVEN = {"subscription": "", "partitions": 2, "consumers": ["x"], "kept": {}}
OF_A = GIVEN | {"subscription": "a", "consumers": ["y"]}


class Served:
    """What is served here: the first shard of topic t, and nothing of the others."""

    def __init__(self) -> None:
        self.topic = Topic("t", spread=2, partitions=2, max_backlog_count=16, producer_rate_max=80)
        self.is_late = False
        homes = Homes(self.of, lambda: None)
        self.clock = VirtualClock()
        self.home: TopicHome | None = TopicHome(lambda: self.topic, self.clock, homes)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def check_owned(self) -> None:
        if self.is_late:
            raise Unavailable("it is another one's", 50)

    def give_back(self, by: Backlog) -> Future[Backlog]:
        kept: Future[Backlog] = Future()
        kept.set_result(Backlog(5, 50))
        return kept

    def of(self, name: str) -> Served:
        if name.startswith("t="):
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


def test_consumers_of_a_subscription_are_dealt_partitions_apart() -> None:
    served = Served()
    homes = Homes(served.of, lambda: served)
    with pytest.raises(TopicUnknown, match="t@a"):
        homes.ask("t=1-2", ASSIGNMENT, OF_A).result()
    served.topic = replace(served.topic, subscriptions={"a": {}})
    for shard in (0, 1):
        own = homes.ask(f"t={shard}-2", ASSIGNMENT, GIVEN).result()
        of_a = homes.ask(f"t={shard}-2", ASSIGNMENT, OF_A).result()
    assert (own["targets"], of_a["targets"]) == ({1: "x"}, {1: "y"})
    served.topic = replace(served.topic, subscriptions={"b": {}})
    homes.ask("t=1-2", ASSIGNMENT, OF_A | {"subscription": "b"}).result()
    served.topic = replace(served.topic, subscriptions={"a": {}})  # another one
    assert homes.ask("t=1-2", ASSIGNMENT, OF_A).result()["targets"] is None


def test_who_is_at_other_shards_is_known_by_what_those_said() -> None:
    served = Served()
    served.topic = replace(served.topic, subscriptions={"a": {"born": 7}})
    homes = Homes(served.of, lambda: served)

    def said(*, is_used: bool, born: int = 7) -> None:
        given = {"subscription": "a", "born": born, "is_used": is_used}
        assert homes.ask("t=1-2", ATTENDANCE, given).result() == {}

    assert served.home is not None
    elsewhere = partial(served.home.elsewhere, "a", 7, 1_000)
    assert elsewhere().is_used  # shard 1 said nothing yet
    said(is_used=False, born=6)  # of the one of this name before
    assert elsewhere().is_used
    said(is_used=False)
    assert elsewhere() == Presence(is_used=False, event_count=0)
    said(is_used=True)
    said(is_used=False)
    assert elsewhere() == Presence(is_used=False, event_count=1)
    served.clock.advance(us=1_001)
    assert elsewhere().is_used  # it may have had consumers since


def test_a_producer_has_one_rate_at_all_shards() -> None:
    served = Served()
    homes = Homes(served.of, lambda: served)
    given = {"sender": "s", "producer": "p", "rows": 30}
    told = [homes.ask(f"t={shard}-2", RATE, given).result()["rows"] for shard in (0, 1)]
    assert told == [35, 35]  # and an eighth of a shard's share of a second beside
    with pytest.raises(ResourceExhausted, match="retry in 250 ms"):
        homes.ask("t=1-2", RATE, given).result()
    served.clock.advance(ms=250)
    assert homes.ask("t=1-2", RATE, given).result()["rows"] == 30


def test_a_shard_is_given_of_the_backlog_what_others_leave() -> None:
    served = Served()
    homes = Homes(served.of, lambda: served)
    given = {"epoch": 1, "serial": 1, "has": [0, 0], "wants": [4, 4]}
    assert homes.ask("t=0-2", BACKLOG, given).result() == {"count": 6, "byte_count": 4}
    with pytest.raises(Unavailable):  # that question was asked before
        homes.ask("t=0-2", BACKLOG, given).result()
    given |= {"wants": [9, 9]}
    assert homes.ask("t=1-2", BACKLOG, given).result()["count"] <= 11


def test_a_shard_elsewhere_is_asked_there() -> None:
    served = Served()
    homes = Homes(served.of, lambda: served)
    near = homes.ask_shard("t=1-2", Backlog(1, 2)).result()
    assert near == {"count": 5, "byte_count": 50}
    assert homes.ask_shard("far=1-2", Backlog(1, 2)).result() == {"far": True}
    body = {"topic": "far=1-2", "count": 1, "byte_count": 2}
    assert served.asked == [("dejaq://far", SHARD, body)]


def test_who_is_the_owner_no_more_says_nothing() -> None:
    served = Served()
    homes = Homes(served.of, lambda: served)
    served.is_late = True
    with pytest.raises(Unavailable):
        homes.ask("t=1-2", ASSIGNMENT, GIVEN).result()
    with pytest.raises(Unavailable):
        homes.ask_shard("t=1-2", Backlog(1, 2)).result()


@pytest.mark.parametrize("body", [{}, {"topic": "t"}, {"topic": "t=1-2", "count": "many"}])
def test_what_a_home_asks_is_checked(body: dict[str, Any]) -> None:
    served = Served()
    with pytest.raises(BadRequest, match=r"^(topic|count):"):
        Homes(served.of, lambda: None).hear_home(body)


@pytest.mark.parametrize(
    "body",
    [
        {"topic": "t", "about": ASSIGNMENT, "given": GIVEN},
        {"topic": 5, "about": ASSIGNMENT, "given": GIVEN},
        {"topic": "t=1-2", "about": "weather", "given": GIVEN},
        {"topic": "t=1-2", "about": ASSIGNMENT, "given": []},
        {"topic": "t=1-2", "about": ASSIGNMENT, "given": {"kept": 5}},
        {"topic": "t=1-2", "about": ATTENDANCE, "given": {"subscription": "a"}},
        {"topic": "t=1-2", "about": RATE, "given": {"rows": "many"}},
        {"topic": "t=1-2", "about": BACKLOG, "given": {"epoch": 1, "has": 5}},
    ],
)
def test_nonsense_is_refused_by_name(body: dict[str, Any]) -> None:
    served = Served()
    with pytest.raises(BadRequest, match=r"^(topic|about|given):"):
        Homes(served.of, lambda: None).hear(body)
