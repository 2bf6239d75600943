"""Covers: what brokers take, give and refuse in rounds that a test goes itself, on a virtual clock.

Not covered: the loops that go them, and everything that takes servers (tests/cluster).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Running, Threads
from dejaqueue.clock import Wake
from dejaqueue.cluster import members, ownership
from dejaqueue.cluster.clocks import UNSURE_MS_MAX
from dejaqueue.cluster.node import ROUND_MS, Node
from dejaqueue.cluster.shared_keys import SharedKeys
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import Elsewhere, Refused, Unavailable
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, DispatchSettings
from dejaqueue.testing.virtual_clock import VirtualClock

LEASE_MS = 4_000
SLOTS = 8


class Loops(Threads):
    """Leaves out the loops of a node: a test goes the rounds. What ends by itself is done."""

    def start(self, name: str, run: Callable[[], None], *, daemon: bool = False) -> Running:
        if name == "dejaq-bury":
            run()
        if name.startswith("dejaq-"):
            return Over()
        return super().start(name, run, daemon=daemon)

    def executor(self, name: str, count: int = 1) -> Executor:
        return AtOnce() if name == "dejaq-give" else super().executor(name, count)


class AtOnce(Executor):
    """Does what it is given before it returns: what a round begins is done when it has ended."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args, **named))
        return done


class Over(Running):
    def join(self) -> None:
        """It is over."""


class Passing(VirtualClock):
    """What the test's own thread waits for comes at once; other threads wait for the test."""

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        if instant_us is None or threading.current_thread() is not threading.main_thread():
            return super().wait_until(instant_us, wake)
        self.advance(us=max(0, instant_us - self.now_us()))
        return False


class Cluster:
    """Brokers on the same journals and facts, on one clock."""

    def __init__(self) -> None:
        self.clock = Passing()
        self.records = MemoryRecordStore()
        self.facts = ProcessFacts(self.clock)
        self.nodes: dict[str, Node] = {}
        self.brokers: dict[str, Broker] = {}
        self.gone: list[str] = []
        self.last: tuple[Node, Broker]

    def start(self, name: str) -> Node:
        node = Node(name, self.facts.open(), LEASE_MS, self.clock, Loops(), slots=SLOTS)
        settings = BrokerSettings(dispatch=DispatchSettings(workers=1))
        broker = Broker(settings, self.clock, store=RecordJournalStore(self.records), node=node)
        self.last = node, broker
        broker.start()
        node.on_gone = self.gone.append
        node.start(broker, f"dejaq://{name}:1", f"http://{name}:2")
        self.nodes[name], self.brokers[name] = node, broker
        return node

    def rounds(self, count: int = 6) -> None:
        """Everybody looks in turn, until all have seen what the others did.

        Time passes while somebody compares its clock with the others': a look apart.
        """
        while self.turn():
            self.clock.advance(ms=UNSURE_MS_MAX)
        for _ in range(count):
            self.turn()

    def turn(self) -> bool:
        """Everybody looks once. True: somebody has not compared its clock with the others' yet."""
        for node in self.nodes.values():
            node._see_topics()
            node.round()
        memberships = [node._membership for node in self.nodes.values()]
        return any(one is not None and one.member.comparing for one in memberships)

    def make(self, *names: str) -> None:
        """Topics that were used before; who serves them is found in rounds."""
        catalogue = next(iter(self.nodes.values()))._catalogue
        assert catalogue is not None
        for name in names:
            catalogue.create(Topic(name), exist_ok=False)
            catalogue.use(name, catalogue.number(name))

    def served(self) -> dict[str, list[str]]:
        return {
            name: sorted(runtime.served_as for runtime in broker.runtimes())
            for name, broker in self.brokers.items()
        }

    def stop(self) -> None:
        for name in list(self.nodes):
            self.nodes.pop(name).stop()
            self.brokers.pop(name).stop()
        self.facts.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.stop()


TOPICS = [f"topic-{number}" for number in range(6)]


def test_a_broker_that_is_alone_takes_every_topic(cluster: Cluster) -> None:
    node = cluster.start("a")
    cluster.make(*TOPICS)
    cluster.rounds()
    assert cluster.served() == {"a": TOPICS}
    assert node.is_member
    assert all(node.refusal(name) is None for name in TOPICS)


def test_a_start_that_broke_off_goes_on_where_it_was__and_joins_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [Unavailable("no leader")] * 2
    refresh = SharedKeys.refresh

    def refreshed(self: SharedKeys) -> None:
        if failures:
            raise failures.pop()
        refresh(self)

    monkeypatch.setattr(SharedKeys, "refresh", refreshed)
    with pytest.raises(Unavailable):
        cluster.start("a")
    node, broker = cluster.last
    with pytest.raises(Unavailable):
        node.start(broker, "dejaq://a:1", "http://a:2")
    began_ms = cluster.clock.now_ms()
    node.start(broker, "dejaq://a:1", "http://a:2")
    assert cluster.clock.now_ms() == began_ms, "it does not wait for its own fact to end"
    assert node.is_member
    broker.stop()
    node.stop()


def test_each_topic_is_served_by_one__and_the_others_know_by_whom(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    cluster.make(*TOPICS)
    cluster.rounds()
    served = cluster.served()
    assert sorted(served["a"] + served["b"]) == TOPICS
    assert served["a"]
    assert served["b"]
    here, there = served["a"][0], served["b"][0]
    refusal = cluster.nodes["a"].refusal(there)
    assert isinstance(refusal, Elsewhere)
    assert (refusal.url, cluster.nodes["a"].refusal(here)) == ("dejaq://b:1", None)
    with pytest.raises(Elsewhere, match=rf"topic {there} is served by b at dejaq://b:1"):
        cluster.brokers["a"].runtime(there)


def test_who_comes_takes_nothing_before_it_has_compared_its_clock(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.make(*TOPICS)
    cluster.rounds()
    cluster.start("b")
    for _ in range(5):
        assert cluster.turn()
        assert cluster.served() == {"a": TOPICS, "b": []}, "nobody hands over to it either"
    cluster.rounds()
    assert cluster.served()["b"]


def test_who_comes_waits_for_those_who_do_not_answer_no_longer_than_their_lease(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.start("a")
    cluster.make(*TOPICS)
    cluster.rounds()
    node, began_us = cluster.start("b"), cluster.clock.now_us()
    silent = cluster.nodes.pop("a")
    while cluster.turn():
        cluster.clock.advance(ms=UNSURE_MS_MAX)
        assert silent._membership is not None
        silent._membership.renew()
        assert node._membership is not None
        node._membership.renew()
    waited_ms = (cluster.clock.now_us() - began_us) // 1_000
    assert LEASE_MS <= waited_ms <= LEASE_MS + 2 * UNSURE_MS_MAX
    assert "its clock was not compared with that of a" in caplog.text
    cluster.nodes["a"] = silent
    cluster.rounds()
    assert cluster.served()["b"]


def test_who_joins_later_is_given_its_part(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.make(*TOPICS)
    cluster.rounds()
    cluster.start("b")
    cluster.rounds()
    served = cluster.served()
    assert served["b"]
    assert sorted(served["a"] + served["b"]) == TOPICS


def test_who_takes_over_serves_by_what_the_owner_before_knew(cluster: Cluster) -> None:
    """Found by seed 500552 of simulated clusters: with fewer partitions than the owner before had
    filled, a batch that was sent again went to another one, and was there twice (rule 10)."""
    for name in "ab":
        cluster.start(name)
    cluster.make(*TOPICS)
    cluster.rounds()
    topic = cluster.served()["a"][0]
    heir = cluster.nodes["b"]
    for own in cluster.served()["b"]:  # what is opened later reads the catalogue
        cluster.brokers["b"].call("counts", {"topic": own})
    cluster.brokers["a"].alter_topic(topic, {"partitions": 5})
    assert heir._catalogue is not None
    assert heir._catalogue.find(topic) == Topic(topic), "nobody has told it"
    cluster.nodes.pop("a").stop()
    cluster.brokers.pop("a").stop()
    heir._topics_changed = False
    heir.round()
    assert cluster.brokers["b"].runtime(topic).topic.partitions == 5


def test_who_leaves_hands_everything_over(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    cluster.make(*TOPICS)
    cluster.rounds()
    cluster.nodes.pop("b").stop()
    cluster.brokers.pop("b").stop()
    cluster.rounds()
    assert cluster.served() == {"a": TOPICS}
    assert cluster.gone == ["dejaq://b:1"], "what was passed on to it ends"


def test_who_did_not_renew_takes_and_allows_nothing__and_the_others_take_over(
    cluster: Cluster,
) -> None:
    """By its own clock it stops before the others may begin."""
    for name in "ab":
        cluster.start(name)
    cluster.make(*TOPICS)
    cluster.rounds()
    lost = cluster.nodes["b"]
    for _ in range(3):
        cluster.clock.advance(ms=LEASE_MS // 2)
        membership = cluster.nodes["a"]._membership
        assert membership is not None
        assert membership.renew()
    assert not lost.is_member
    refusal = lost.refusal(cluster.served()["b"][0])
    assert isinstance(refusal, Unavailable)
    assert "node b has lost touch with the cluster" in str(refusal)
    assert lost.round() == ROUND_MS
    lost._fence()
    assert cluster.served()["b"] == []
    del cluster.nodes["b"]
    cluster.rounds()
    assert cluster.served()["a"] == TOPICS
    cluster.nodes["b"] = lost


def test_a_topic_whose_journal_was_fenced_is_looked_for_before_it_is_opened_again(
    cluster: Cluster,
) -> None:
    node = cluster.start("a")
    cluster.make("t")
    cluster.rounds()
    node.fenced("t")
    refusal = node.refusal("t")
    assert isinstance(refusal, Elsewhere)
    assert "topic t is between two owners" in str(refusal)
    cluster.rounds()
    assert node.refusal("t") is None


def test_of_two_who_claim_one_wins__and_the_other_looks_again_soon(cluster: Cluster) -> None:
    first, second = cluster.start("a"), cluster.start("b")
    cluster.make("t")
    for node in (first, second):
        node.round()
    winner = "a" if cluster.served()["a"] else "b"
    loser = cluster.nodes["b" if winner == "a" else "a"]
    membership = loser._membership
    assert membership is not None
    slot = loser._slot("t")
    loser._view.owners.pop(slot, None)
    assert not loser._claims.claim(slot, membership.member.session, loser._view.owners)
    owners = ownership.owners_of(first.coordinator.list(ownership.PREFIX))
    assert owners[slot].node == winner


def test_a_deleted_topic_is_let_go_of_and_buried__by_rounds_alone(cluster: Cluster) -> None:
    node = cluster.start("a")
    cluster.make("t", "stays")
    cluster.rounds()
    catalogue = node._catalogue
    assert catalogue is not None
    for name in ("t", "stays"):
        cluster.brokers["a"].runtime(name).look(0, lambda core: core.number).result(10)
    catalogue.delete("t")
    cluster.rounds()
    assert cluster.served() == {"a": ["stays"]}
    assert not list(catalogue.leaving())
    assert {journals.partition(".")[0] for journals, _ in cluster.records.logs} == {
        "stays",
        "=catalogue",
    }
    assert len(node.coordinator.list(ownership.PREFIX)) == SLOTS, "slots stay as they are"


def test_a_coordinator_that_forgot_the_members_is_not_believed(cluster: Cluster) -> None:
    """It was restored from an older copy: who looks first would claim what the others serve."""
    for name in "ab":
        cluster.start(name)
    cluster.make(*TOPICS)
    cluster.rounds()
    before, node = cluster.served(), cluster.nodes["a"]
    for fact in node.coordinator.list(members.PREFIX):
        node.coordinator.delete(fact.key)
    assert node.round() == ROUND_MS
    assert cluster.served() == before
    for one in cluster.nodes.values():
        membership = one._membership
        assert membership is not None
        membership.leave()


def test_the_cluster_is_described_as_it_was_last_seen(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    cluster.make("t", "u")
    cluster.rounds()
    found: dict[str, Any] = cluster.nodes["a"].describe("")
    assert (found["node"], found["astray"]) == ("a", 0)
    assert [one["node"] for one in found["nodes"]] == ["a", "b"]
    served = cluster.served()
    assert {one["topic"]: one["node"] for one in found["topics"]} == {
        topic: name for name, topics in served.items() for topic in topics
    }
    assert [one["topic"] for one in cluster.nodes["a"].describe("t")["topics"]] == ["t"]


def test_only_servers_of_jetstream_are_repaired_by_brokers(cluster: Cluster) -> None:
    node = cluster.start("a")
    with pytest.raises(Refused, match="only servers of JetStream"):
        node.act("repair_node", {"node": "b"})
    assert node.act("check_cluster", {}) == {"astray": []}


def test_stopping_twice_or_before_the_start_is_fine() -> None:
    facts = ProcessFacts(VirtualClock())
    node = Node("a", facts.open(), LEASE_MS, VirtualClock(), Loops())
    node.stop()
    node.stop()
    assert not node.is_member
    assert isinstance(node.refusal("t"), Unavailable)
