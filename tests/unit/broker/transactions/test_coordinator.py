"""Decisions on their way: told when durable, noted when all know them, and told again.

Two partitions of a broker in memory; other brokers: tests/cluster/test_transactions_apart.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.peers import ASK, TELL
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.transactions import home
from dejaqueue.broker.transactions.coordinator import Coordinator
from dejaqueue.broker.transactions.home import Decision
from dejaqueue.broker.transactions.names import TransactionName, family_of
from dejaqueue.broker.transactions.record import Record
from dejaqueue.errors import Elsewhere, Refused, TopicUnknown, Unavailable
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings

SECONDS_MAX = 20


class Peers:
    """Other brokers, of which one has the topic "far"."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: dict[str, Any] | BaseException = {}

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert url == "grpc://far"
        self.asked.append((action, body))
        future: Future[dict[str, Any]] = Future()
        if isinstance(self.answer, BaseException):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


@pytest.fixture
def peers() -> Peers:
    return Peers()


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t", partitions=2))
    # Read, and stepped once: afterwards the home's own chore tells nobody by itself.
    for number in (0, 1, 0, 1):
        broker.runtime("t").look(number, lambda core: None).result(SECONDS_MAX)
    yield broker
    broker.stop()


@pytest.fixture
def coordinator(broker: Broker, peers: Peers) -> Coordinator:
    def served(name: str) -> ServedTopic:
        if name == "far":
            raise Elsewhere("topic far is served by another broker", 50, url="grpc://far")
        return broker.runtime(name)

    def has(topic: str, partition: int) -> bool:
        return topic == "far" or (topic == "t" and partition < 2)

    return Coordinator(served, has, lambda topic, _partition: topic, lambda: peers)


def a_name(broker: Broker, partition: int = 0) -> TransactionName:
    now_ms = broker.clock.utc_ms()
    return TransactionName.parse(f"t/{partition}/{now_ms}-60000-{family_of(NOBODY)}")


def decided(
    coordinator: Coordinator, name: TransactionName, *places: tuple[str, int], commit: bool = True
) -> Future[None]:
    record = Record(places)
    remember = partial(home.remember, name=name, record=record, commit=commit)
    return coordinator.begin(name, remember, commit)


def known(broker: Broker, name: TransactionName) -> Decision | None:
    look = partial(home.known_decision, name=name)
    return broker.runtime(name.topic).look(name.partition, look).result(SECONDS_MAX)


def heard(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """What a callback is called with."""
    future: Future[Any] = Future()
    ask(future.set_result)
    return future.result(SECONDS_MAX)


def test_when_all_were_told_the_home_has_nobody_left_to_tell(
    broker: Broker, coordinator: Coordinator, peers: Peers
) -> None:
    name = a_name(broker)
    decided(coordinator, name, ("t", 0), ("t", 1), ("far", 3)).result(SECONDS_MAX)
    [(action, body)] = peers.asked
    assert (action, body["place"], body["commit"], body["record"]) == (TELL, "far/3", True, "")
    decision = known(broker, name)
    assert decision is not None
    assert (decision.commit, decision.record.places) == (True, ())


def test_who_could_not_be_told_is_told_again_by_the_home(
    broker: Broker, coordinator: Coordinator, peers: Peers
) -> None:
    name = a_name(broker)
    peers.answer = Unavailable("it is away")
    with pytest.raises(Unavailable, match="committed, but not every partition could be told"):
        decided(coordinator, name, ("far", 0)).result(SECONDS_MAX)
    assert coordinator.take_untold("t", 0) == [name.text]
    assert coordinator.take_untold("t", 0) == []
    assert not heard(partial(coordinator.tell_again, name.text))
    peers.answer = {}
    assert heard(partial(coordinator.tell_again, name.text))
    decision = known(broker, name)
    assert decision is not None
    assert decision.record.places == ()


def test_a_topic_that_is_gone_has_nothing_to_be_told(
    broker: Broker, coordinator: Coordinator
) -> None:
    name = a_name(broker)
    decided(coordinator, name, ("gone", 0)).result(SECONDS_MAX)
    decision = known(broker, name)
    assert decision is not None
    assert decision.record.places == ()


def test_the_first_decision_stays(broker: Broker, coordinator: Coordinator) -> None:
    name = a_name(broker, 1)
    decided(coordinator, name, commit=False).result(SECONDS_MAX)
    with pytest.raises(Refused, match="was aborted"):
        decided(coordinator, name).result(SECONDS_MAX)


def test_what_became_of_it_is_asked_here_or_there__of_nobody_it_was_not_committed(
    broker: Broker, coordinator: Coordinator, peers: Peers
) -> None:
    name = a_name(broker)
    assert heard(partial(coordinator.recall, name.text)) is None  # undecided, and in time
    decided(coordinator, name).result(SECONDS_MAX)
    assert heard(partial(coordinator.recall, name.text)) is True
    assert heard(partial(coordinator.recall, name.text.replace("t/", "gone/", 1))) is False
    far = name.text.replace("t/", "far/", 1)
    peers.answer = {"commit": True}
    assert heard(partial(coordinator.recall, far)) is True
    peers.answer = TopicUnknown("far")  # what that means is said by the catalogue here
    assert heard(partial(coordinator.recall, far)) is None
    peers.answer = Unavailable("it is away")
    assert heard(partial(coordinator.recall, far)) is None
    assert {action for action, _ in peers.asked} == {ASK}


def test_who_waits_is_told_when_the_broker_stops(
    broker: Broker, coordinator: Coordinator, peers: Peers
) -> None:
    peers.answer = {}
    silent: Future[dict[str, Any]] = Future()
    peers.ask = lambda url, action, body: silent  # type: ignore[method-assign]
    future = decided(coordinator, a_name(broker), ("far", 0))
    assert not future.done()
    broker.runtime("t").look(0, lambda core: None).result(SECONDS_MAX)
    coordinator.close()
    with pytest.raises(Unavailable, match="stopping"):
        future.result(SECONDS_MAX)
    silent.set_result({})  # too late: it was answered
