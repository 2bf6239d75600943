"""A coordinator that was restored from an older copy, or lost; brokers with journals of their own.

Covered: topics, partitions and messages that came after the copy was taken are served, since the
coordinator has none of that; who does not share the journals does not start. Not here: catalogues
alone (tests/unit/cluster/test_catalogue.py, test_identity.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import Refused
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.model import Topic
from tests.cluster.brokers import Cluster, patiently, send
from tests.patience import until

ROWS = [f"row {number}" for number in range(20)]


def on(path: Path) -> Callable[[], Coordinator]:
    return lambda: open_coordinator(f"sqlite:///{path}")


def test_topics_that_were_made_after_the_copy_are_served(tmp_path: Path) -> None:
    facts, copy = tmp_path / "facts.db", tmp_path / "copy.db"
    with Cluster(coordinator=on(facts)) as cluster:
        first = cluster.start("a")
        first.create_topic(Topic("old"))
        first.create_topic(Topic("grown"))
        cluster.send_to_owner("old", ROWS)
        cluster.stop("a")
        shutil.copy(facts, copy)
        first = cluster.start("a")
        first.create_topic(Topic("new", partitions=2))
        first.alter_topic("grown", {"partitions": 3})
        for topic in ("old", "new", "grown"):
            cluster.send_to_owner(topic, ROWS)
        cluster.stop("a")
        for path in tmp_path.glob("facts.db*"):
            path.unlink()
        shutil.copy(copy, facts)

        for name in "ab":
            cluster.start(name)
        until(lambda: bool(cluster.owners("new")), "somebody serves it")
        assert sorted(cluster.payloads("new")) == sorted(ROWS)
        until(lambda: cluster.payloads("grown") == sorted(ROWS), "all partitions are served")
        assert sorted(cluster.payloads("old")) == sorted(ROWS * 2)
        assert cluster.brokers["b"].topic("grown").partitions == 3
        assert cluster.nodes["a"].act("check_cluster", {}) == {"astray": []}


def test_a_coordinator_that_was_lost_takes_the_cluster_of_the_journals(tmp_path: Path) -> None:
    records = MemoryRecordStore()
    with Cluster(records, on(tmp_path / "lost.db")) as cluster:
        cluster.start("a").create_topic(Topic("t"))
        patiently(lambda: send(cluster.owner("t"), "t", ROWS))
    with Cluster(records, on(tmp_path / "fresh.db")) as cluster:
        with pytest.raises(Refused, match="knows no cluster"):
            cluster.start("a")
        cluster.start("a", adopts=True)
        until(lambda: bool(cluster.owners("t")), "somebody serves it")
        assert sorted(cluster.payloads("t")) == sorted(ROWS)
        cluster.start("b")


def test_who_has_journals_of_its_own_does_not_join(tmp_path: Path) -> None:
    with Cluster(coordinator=on(tmp_path / "facts.db")) as cluster:
        cluster.start("a").create_topic(Topic("t"))
        with pytest.raises(Refused, match=r"belong to no cluster.*journal\.url"):
            cluster.start("b", records=MemoryRecordStore())
        assert sorted(cluster.brokers) == ["a"]
        assert [one["node"] for one in cluster.nodes["a"].describe("")["nodes"]] == ["a"]
