"""Transactions whose topics are served by several brokers, from the beginning or since a hand-over.

Covered: both halves come or neither, whoever joins, leaves or dies in between; inputs acked in a
transaction come back or are done; what brokers say to one another needs no client's key.
Not here: the same among faults (tests/simulation/cluster), those of one broker (tests/rules).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress

import pyarrow.flight as flight
import pytest

from dejaqueue import Client, Message
from dejaqueue.access.gate import Gate
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.transactions.names import family_of
from dejaqueue.errors import Forbidden, Refused, TopicUnknown, TryLater, Unauthenticated
from dejaqueue.flight.forwarding import Onward
from dejaqueue.flight.server import FlightServer
from dejaqueue.model import Topic
from tests.cluster.brokers import Cluster, patiently
from tests.patience import PATIENCE_SECONDS, until

TOPICS = [f"topic-{number}" for number in range(12)]


class Served(Cluster):
    """Brokers on ports, so that they reach one another."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[str, FlightServer] = {}

    def listen(self, name: str, broker: Broker) -> str:
        server = self.servers[name] = FlightServer(broker, gate=Gate(broker.keys))
        server.start()
        return server.url

    def stop(self, name: str) -> None:
        self.nodes[name].stop()
        self.servers.pop(name).stop()
        self.nodes.pop(name)
        self.brokers.pop(name).stop()

    def client(self, name: str, api_key: str | None = None) -> Client:
        return Client(self.servers[name].url, api_key=api_key)


@pytest.fixture
def cluster() -> Iterator[Served]:
    with Served() as made:
        made.start("a")
        yield made


def make(cluster: Cluster) -> None:
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic))


def served_by(cluster: Cluster, name: str) -> str:
    """A topic that a broker serves."""
    return next(topic for topic in TOPICS if cluster.owners(topic) == [name])


def settled(cluster: Cluster) -> None:
    cluster.dealt()
    until(lambda: all(len(cluster.owners(topic)) == 1 for topic in TOPICS), "owners")


def rows(client: Client, topic: str) -> list[bytes]:
    found: list[list[bytes]] = []
    patiently(lambda: found.append(client.peek(topic)["payload"].to_pylist()))
    return found[0]


def test_a_transaction_over_topics_of_two_brokers_counts_in_both(cluster: Served) -> None:
    cluster.start("b")
    make(cluster)
    settled(cluster)
    topics = [served_by(cluster, "a"), served_by(cluster, "b")]
    with cluster.client("a") as client:
        for order in (topics, topics[::-1]):  # the first one is where it is decided
            with client.transaction() as transaction:
                for topic in order:
                    transaction.send(topic, b"both")
            with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
                for topic in order:
                    transaction.send(topic, b"neither")
                raise ZeroDivisionError
        for topic in topics:
            assert rows(client, topic) == [b"both", b"both"]


@pytest.mark.parametrize("commits", [True, False])
def test_a_broker_that_joins_between_sends_and_commit_tears_nothing(
    cluster: Served, commits: bool
) -> None:
    make(cluster)
    settled(cluster)
    with cluster.client("a") as client:
        client.send("topic-0", b"input")
        with client.consume("topic-0") as consumer:
            message = next(iter(consumer))
            transaction = client.transaction(timeout=300)
            for topic in TOPICS[1:]:
                transaction.send(topic, b"half")
            transaction.ack(message)
        cluster.start("b")
        until(lambda: any(cluster.owners(t) == ["b"] for t in TOPICS), "b has a share")
        settled(cluster)
        patiently(transaction.commit if commits else transaction.abort)
        for topic in TOPICS[1:]:
            expected = [b"half"] if commits else []
            until(lambda t=topic, e=expected: rows(client, t) == e, f"{topic}: {expected}")  # type: ignore[misc]
        left = [] if commits else [b"input"]
        until(lambda: rows(client, "topic-0") == left, f"the input: {left}")
        assert len({tuple(rows(client, topic)) for topic in TOPICS[1:]}) == 1


def test_a_decision_reaches_who_was_away_when_it_was_made(cluster: Served) -> None:
    cluster.start("b")
    make(cluster)
    settled(cluster)
    home, other = served_by(cluster, "a"), served_by(cluster, "b")
    with cluster.client("a") as client:
        peers = {name: broker.peers for name, broker in cluster.brokers.items()}
        for broker in cluster.brokers.values():  # nor can the other one ask, as it does when read
            broker.peers = None
        transaction = client.transaction()
        transaction.send(home, b"half")
        transaction.send(other, b"half")
        with pytest.raises(TryLater, match="is committed, but not every partition could be told"):
            cluster.brokers["a"].transactions.decide(
                transaction.name, [f"{home}/0", f"{other}/0"], commit=True
            ).result(PATIENCE_SECONDS)
        assert rows(client, home) == [b"half"]
        assert rows(client, other) == []
        for name, broker in cluster.brokers.items():
            broker.peers = peers[name]
        until(lambda: rows(client, other) == [b"half"], "it was told again")


@pytest.mark.parametrize("served_again", ["a", "b"])
def test_a_decision_outlives_the_topic_where_it_was_made(
    cluster: Served, served_again: str
) -> None:
    cluster.start("b")
    make(cluster)
    settled(cluster)
    home, other = served_by(cluster, "a"), served_by(cluster, "b")
    with cluster.client(served_again) as client:
        ports = {name: broker.peers for name, broker in cluster.brokers.items()}
        for broker in cluster.brokers.values():
            broker.peers = None
        transaction = client.transaction(timeout=5)
        transaction.send(home, b"half")
        transaction.send(other, b"half")
        with pytest.raises(TryLater):
            cluster.brokers["a"].transactions.decide(
                transaction.name, [f"{home}/0", f"{other}/0"], commit=True
            ).result(PATIENCE_SECONDS)
        with suppress(TryLater):  # it goes on
            cluster.brokers[served_again].delete_topic(home)
        for name, broker in cluster.brokers.items():
            broker.peers = ports[name]
        until(lambda: rows(client, other) == [b"half"], "what was committed is there")
        patiently(lambda: cluster.brokers[served_again].create_topic(Topic(home)))
        assert rows(client, home) == []


def test_a_tell_that_was_given_up_is_said_again(cluster: Served) -> None:
    cluster.start("b")
    make(cluster)
    settled(cluster)
    home, other = served_by(cluster, "a"), served_by(cluster, "b")
    broker = cluster.brokers["a"]

    class GivesUp:
        """As when the broker that is told vanishes while others wait before."""

        def ask(self, url: str, action: str, body: dict[str, object]) -> Future[dict[str, object]]:
            given_up: Future[dict[str, object]] = Future()
            given_up.cancel()
            return given_up

    with cluster.client("a") as client:
        transaction = client.transaction()
        transaction.send(home, b"half")
        transaction.send(other, b"half")
        told, broker.peers = broker.peers, GivesUp()
        with pytest.raises(TryLater):
            broker.transactions.decide(
                transaction.name, [f"{home}/0", f"{other}/0"], commit=True
            ).result(PATIENCE_SECONDS)
        broker.peers = told
        until(lambda: rows(client, other) == [b"half"], "it was told again")
        assert rows(client, home) == [b"half"]


def stage_in_time(client: Client, home: str, message: Message) -> None:
    """A send and an ack of one transaction that is never decided, and whose time is over soon."""
    for timeout in (1, 4, 16, 64):
        transaction = client.transaction(timeout=timeout)
        try:
            transaction.send(home, b"half")
            transaction.ack(message)
            return
        except Refused:  # its time was over before both were staged: the machine is busy
            continue
    raise AssertionError("a send and an ack took longer than a minute")


def test_what_was_never_decided_is_asked_about_and_comes_back(cluster: Served) -> None:
    cluster.start("b")
    make(cluster)
    settled(cluster)
    home, other = served_by(cluster, "a"), served_by(cluster, "b")
    with cluster.client("a") as client:
        client.send(other, b"input")
        with client.consume(other) as consumer:
            message = next(iter(consumer))
            stage_in_time(client, home, message)
            again = next(iter(consumer))
            assert again.payload == b"input"
            again.ack()
        until(lambda: rows(client, home) == rows(client, other) == [], "nothing is left")


def test_only_brokers_say_what_was_decided(cluster: Served) -> None:
    cluster.start("b")
    make(cluster)
    settled(cluster)
    home, other = served_by(cluster, "a"), served_by(cluster, "b")
    keys = cluster.brokers["a"].keys
    _, admin = keys.create("admin", ["admin:*"])
    until(lambda: cluster.brokers["b"].keys.required, "b knows that there are keys")
    key, text = keys.create("short", ["produce:*"])
    with cluster.client("a", text) as client, cluster.client("a", admin) as looking:
        patiently(lambda: rows(looking, other))
        until(lambda: key.id in {one.id for one in cluster.brokers["b"].keys.all()}, "b knows it")
        transaction = client.transaction()
        transaction.send(home, b"half")
        transaction.send(other, b"half")
        name = transaction.name
        for bearer, refused in ((admin, Forbidden), ("nonsense", Unauthenticated)):
            with pytest.raises(refused):
                cluster.servers["b"].forwarding.action(
                    _onward(cluster, "b", bearer),
                    flight.Action("ask_transaction", json.dumps({"transaction": name}).encode()),
                )
        peers = cluster.brokers["a"].peers
        cluster.brokers["a"].peers = None  # the other one cannot be told for now
        places = [f"{home}/0", f"{other}/0"]
        with pytest.raises(TryLater):
            cluster.brokers["a"].transactions.decide(
                name, places, commit=True, sender=Sender("short")
            ).result(PATIENCE_SECONDS)
        keys.revoke(key.id)
        until(lambda: key.id not in {o.id for o in cluster.brokers["b"].keys.all()}, "revoked")
        cluster.brokers["a"].peers = peers
        until(lambda: rows(looking, other) == [b"half"], "the key is gone, the decision is not")


def _onward(cluster: Served, name: str, bearer: str) -> Onward:
    return Onward(cluster.servers[name].url, bearer)


def test_a_participant_that_is_nowhere_is_no_participant(cluster: Served) -> None:
    make(cluster)
    settled(cluster)
    broker = cluster.owner(TOPICS[0])
    name = broker.transactions.act("begin_transaction", {"topic": TOPICS[0]}).result()
    places = [f"{TOPICS[0]}/77", "nowhere/0", f"{TOPICS[0]}/0"]
    broker.transactions.decide(name["transaction"], places, commit=True).result(PATIENCE_SECONDS)
    with pytest.raises(TopicUnknown):
        broker.transactions.decide(f"{TOPICS[0]}/77/1-5-{family_of(NOBODY)}", [], commit=True)
