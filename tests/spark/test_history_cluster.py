"""Covers: the history of a topic that several brokers served, one after the other, as one table.

Brokers in this process, with ports, journals and a directory of history each; a real Spark.
Not covered: how what they recorded is put together (tests/unit/spark/test_history_plan.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic import handing_over
from dejaqueue.flight.server import FlightServer
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, HistorySettings
from tests.cluster.brokers import Cluster, patiently, send
from tests.patience import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"


class Serving(Cluster):
    """Brokers that are reached over the network, and record history."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.servers: dict[str, FlightServer] = {}

    def settings(self, name: str) -> BrokerSettings:
        return BrokerSettings(history=HistorySettings(directory=str(self.folder / name)))

    def listen(self, name: str, broker: Broker) -> str:
        server = self.servers[name] = FlightServer(broker, "127.0.0.1", 0)
        server.start()
        return self.url(name)

    def url(self, name: str) -> str:
        return f"dejaq://127.0.0.1:{self.servers[name].port}"

    def stop(self, name: str) -> None:
        self.nodes.pop(name).stop()
        self.servers.pop(name).stop()
        self.brokers.pop(name).stop()

    def served_by(self, name: str) -> Broker:
        """Wait until this one serves the topic."""
        until(lambda: self.owners(TOPIC) == [name], f"{name} serves it")
        return self.brokers[name]

    def send(self, name: str, rows: range) -> None:
        """Send by the one that serves the topic."""
        broker = self.served_by(name)
        patiently(lambda: send(broker, TOPIC, [f"p{row}" for row in rows]))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path) as made:
        yield made


def history(spark: SparkSession, cluster: Serving, name: str) -> DataFrame:
    reader = spark.read.format("dejaq").options(url=cluster.url(name), view="history")
    return reader.load(TOPIC)


def found(spark: SparkSession, cluster: Serving, name: str) -> tuple[Counter[str], int]:
    """How often each change of each message is there, and how many messages came in."""
    rows = history(spark, cluster, name).select("change", "id").collect()
    counts = Counter((row["change"], row["id"]) for row in rows if row["change"] != "gap")
    assert set(counts.values()) <= {1}, "each change once"
    return Counter(row["change"] for row in rows), len({number for _, number in counts})


def test_all_brokers_are_asked__each_change_comes_once(
    spark: SparkSession, cluster: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else an owner of a small topic reads, and records, what the one before it had.
    monkeypatch.setattr(handing_over, "ENTRIES_MAX", 0)
    cluster.start("a").create_topic(Topic(TOPIC, history=True, partitions=2))
    cluster.send("a", range(10))
    cluster.start("b")
    cluster.stop("a")  # hands over
    cluster.send("b", range(10, 30))
    cluster.start("a")
    until(lambda: len(cluster.owners(TOPIC)) == 1, "somebody serves it")
    [serves] = cluster.owners(TOPIC)
    other = "b" if serves == "a" else "a"
    cluster.send(serves, range(30, 60))
    for asked in "ab":
        assert found(spark, cluster, asked) == (Counter(enqueued=60), 60)
    # It is out of touch, another one takes over and reads again what it has recorded, too.
    cluster.lose_touch(serves)
    cluster.send(other, range(60, 100))
    cluster.be_back(serves)
    until(lambda: len(cluster.brokers["a"].cluster()["nodes"]) == 2, "both are there")
    assert found(spark, cluster, other) == (Counter(enqueued=100), 100)
    # Without it some is missing, which a gap says; nothing else is wrong.
    cluster.stop(serves)
    changes, messages = found(spark, cluster, other)
    assert changes["gap"] >= 1
    assert 40 <= messages < 100


def test_a_topic_made_anew_begins_its_history__wherever_the_old_one_was_recorded(
    spark: SparkSession, cluster: Serving
) -> None:
    cluster.start("a").create_topic(Topic(TOPIC, history=True))
    cluster.send("a", range(50))
    cluster.start("b")
    cluster.stop("a")
    cluster.served_by("b").delete_topic(TOPIC)
    cluster.brokers["b"].create_topic(Topic(TOPIC, history=True))
    cluster.send("b", range(3))
    cluster.start("a")
    until(lambda: len(cluster.brokers["b"].cluster()["nodes"]) == 2, "both are there")
    until(lambda: len(cluster.owners(TOPIC)) == 1, "somebody serves it")
    assert found(spark, cluster, "a") == (Counter(enqueued=3), 3)
    if cluster.owners(TOPIC) == ["b"]:
        cluster.stop("b")
    # Who recorded the old one records the new one from its first position on, or says what not.
    cluster.send("a", range(3, 10))
    changes, messages = found(spark, cluster, "a")
    assert changes["enqueued"] == messages >= 7
