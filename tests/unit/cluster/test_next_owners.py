"""Covers: a next owner is asked until it has read all, and not waited for in vain."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.peers import READ_AHEAD
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.cluster.next_owners import AHEAD_SECONDS_MAX, REST_US, SILENCES_MAX, NextOwners
from dejaqueue.errors import BadRequest, DejaQError, TopicUnknown, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

URL = "dejaq://b:1"


class Peers:
    """The next owner: reads each topic when it was asked about it so often."""

    def __init__(self, times: int = 1) -> None:
        self._times = times
        self.asked: list[str] = []
        self.error: DejaQError | None = None

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert (url, action) == (URL, READ_AHEAD)
        self.asked.append(body["topic"])
        answer: Future[dict[str, Any]] = Future()
        if self.error is not None:
            answer.set_exception(self.error)
        else:
            answer.set_result({"is_read": self.asked.count(body["topic"]) >= self._times})
        return answer


class Waiting(VirtualClock):
    """Time passes when it is waited for."""

    def wait_until(self, instant_us: int | None, wake: object) -> bool:
        assert instant_us is not None
        self.advance(ms=-(-(instant_us - self.now_us()) // 1_000))
        return False


def broker_of(peers: Peers | None) -> Broker:
    """A broker that hands over."""

    def ask_to_read(url: str, name: str) -> Future[dict[str, Any]] | None:
        return None if peers is None else peers.ask(url, READ_AHEAD, {"topic": name})

    return cast("Broker", SimpleNamespace(ask_to_read=ask_to_read))


def test_it_is_asked_until_it_has_read_each() -> None:
    clock = Waiting()
    peers = Peers(times=3)
    NextOwners(Threads(), clock).have_read(broker_of(peers), URL, ["t", "u"])
    assert peers.asked == ["t", "u"] * 3


def test_who_is_late_once_is_not_waited_for_again() -> None:
    clock = Waiting()
    peers = Peers(times=10**9)
    next_owners, began_us = NextOwners(Threads(), clock), clock.now_us()
    next_owners.have_read(broker_of(peers), URL, ["t"])
    assert AHEAD_SECONDS_MAX <= (clock.now_us() - began_us) / 1e6 < AHEAD_SECONDS_MAX + 1
    asked = len(peers.asked)
    next_owners.have_read(broker_of(peers), URL, ["t"])
    assert len(peers.asked) == asked


def test_who_does_not_answer_is_asked_a_few_times() -> None:
    clock = Waiting()
    peers = Peers()
    peers.error = Unavailable("no answer", 100)
    next_owners = NextOwners(Threads(), clock)
    for _ in range(3):  # slots
        next_owners.have_read(broker_of(peers), URL, ["t"])
        assert len(peers.asked) == SILENCES_MAX
    peers.error = None  # it is there again
    clock.advance(ms=REST_US // 1_000)
    next_owners.have_read(broker_of(peers), URL, ["t"])
    assert len(peers.asked) == SILENCES_MAX + 1


def test_who_cannot_do_it_is_asked_once() -> None:
    clock = Waiting()
    for error in (BadRequest("action", "one of …", READ_AHEAD), TopicUnknown("t")):
        peers = Peers()
        peers.error = error
        NextOwners(Threads(), clock).have_read(broker_of(peers), URL, ["t"])
        assert len(peers.asked) == 1


def test_nobody_is_waited_for_where_nothing_is_read_ahead() -> None:
    clock = Waiting()
    began_us = clock.now_us()
    NextOwners(Threads(), clock).have_read(broker_of(None), URL, ["t"])
    assert clock.now_us() == began_us
