"""Covers: brokers of a cluster whose clocks differ: who comes with another clock serves nothing,
who is put wrong while it serves lets go, and nothing is lost or early.

Not covered: what can be told of other clocks (tests/unit/cluster/test_clocks.py); many of them,
with all that else goes wrong (tests/simulation/cluster).
"""

from __future__ import annotations

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.watching.clocks import clock_numbers
from dejaqueue.broker.watching.health import health_of
from dejaqueue.clock import SystemClock
from dejaqueue.cluster.claims import Claims
from dejaqueue.cluster.node import Node
from dejaqueue.cluster.ownership import Owner
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from tests.cluster.brokers import Away, Cluster, Stoppable, send
from tests.patience import until

DAY_US = 86_400_000_000
TOPICS = [f"t{number}" for number in range(6)]


class WrongClock(SystemClock):
    """The machine's clock, off by so much."""

    def __init__(self, off_us: int) -> None:
        super().__init__()
        self.off_us = off_us

    def now_us(self) -> int:
        return super().now_us() + self.off_us


class WrongCluster(Cluster):
    """Brokers of which some have another clock."""

    def start_wrong(self, name: str, off_us: int) -> WrongClock:
        self.coordinators[name] = Away(self._coordinator())
        self.clocks[name] = Stoppable()
        node = Node(name, self.coordinators[name], self._lease_ms, self.clocks[name])
        clock = WrongClock(off_us)
        store = RecordJournalStore(self.records)
        broker = Broker(self.settings(name), clock, store=store, node=node)
        broker.start()
        node.start(broker, self.listen(name, broker), f"http://{name}:2")
        self.nodes[name], self.brokers[name] = node, broker
        return clock


def served(broker: Broker) -> int:
    return sum(broker.serves(topic) for topic in TOPICS)


def test_who_joins_a_day_ahead_serves_nothing_until_its_clock_is_right() -> None:
    with WrongCluster() as cluster:
        first = cluster.start("a")
        for topic in TOPICS:
            first.create_topic(Topic(topic))
            send(first, topic, ["in two hours"], delay_ms=7_200_000)
        clock = cluster.start_wrong("b", DAY_US)
        wrong = cluster.brokers["b"]
        until(lambda: cluster.nodes["b"].clock_apart_us != 0, "b knows that it is wrong")
        until(lambda: cluster.nodes["a"].describe("")["nodes"][1]["leaving"], "a sees it")
        assert (served(first), served(wrong)) == (len(TOPICS), 0)
        assert any("off, by those of the other" in text for text in health_of(wrong).warnings)
        assert clock_numbers(wrong).apart_us > DAY_US * 0.9
        until(lambda: "b" in cluster.nodes["a"].clocks.bounds(), "a has seen the clock of b")
        shown = cluster.nodes["a"].describe("")["nodes"][1]["clock"]
        assert shown["ahead_ms_min"] > 80_000_000
        clock.off_us = 0
        until(lambda: served(wrong) > 0, "b serves when its clock is right")
        assert cluster.nodes["b"].clock_apart_us == 0
        until(lambda: served(first) + served(wrong) == len(TOPICS), "all is served")


@pytest.mark.parametrize("off_us", [-3_000_000, 3_000_000])
def test_who_joins_three_seconds_off_never_claims_a_slot(
    off_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is less than the lease: nothing tells it at once, so it has to compare before."""
    claims: list[str] = []
    inner = Claims.claim

    def claim(self: Claims, slot: int, session: str, owners: dict[int, Owner]) -> bool:
        claims.append(self._node)
        return inner(self, slot, session, owners)

    monkeypatch.setattr(Claims, "claim", claim)
    with WrongCluster() as cluster:
        first = cluster.start("a")
        for topic in TOPICS:
            first.create_topic(Topic(topic))
        clock = cluster.start_wrong("b", off_us)
        until(lambda: cluster.nodes["b"].clock_apart_us != 0, "b knows that it is wrong")
        assert set(claims) == {"a"}
        assert (served(first), served(cluster.brokers["b"])) == (len(TOPICS), 0)
        clock.off_us = 0
        until(lambda: "b" in claims, "b claims slots when its clock is right")


def test_whose_clock_is_put_wrong_lets_go_of_what_it_has() -> None:
    with WrongCluster() as cluster:
        cluster.start("a")
        cluster.start("b")
        clock = cluster.start_wrong("c", 0)
        wrong = cluster.brokers["c"]
        for topic in TOPICS:
            cluster.brokers["a"].create_topic(Topic(topic))
        until(lambda: served(wrong) > 0, "c serves something")
        clock.off_us = -DAY_US
        until(lambda: served(wrong) == 0, "c has let go")
        others = [cluster.brokers[name] for name in "ab"]
        until(lambda: sum(map(served, others)) == len(TOPICS), "the others serve all of it")
        assert cluster.nodes["c"].clock_apart_us < -DAY_US // 2
