"""Which files of history are read, by one broker or by several. By Spark's tasks: tests/spark."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import LongType, StructField, StructType

from dejaqueue import limits
from dejaqueue.spark.history import HOUR_MS, FilteringHistoryReader
from dejaqueue.spark.options import Options
from dejaqueue.spark.reader import Stretch
from tests.unit.client.fake_transport import FakeTransport

SCHEMA = StructType([StructField("at_ms", LongType())])
ALWAYS_MS = limits.INSTANT_MS_MAX + 1


def file(name: str, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "partition": partition, "has_gaps": False, **more}


class Cluster:
    """Brokers by their URLs, each with its answer; without any the one that is asked is alone."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.alone: list[dict[str, Any]] = []
        self.brokers: dict[str, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.transports: list[FakeTransport] = []
        patch.setattr(Options, "transport", lambda options: self._open())
        patch.setattr(Options, "transport_to", lambda options, url: self._open(url))

    def _open(self, url: str = "") -> FakeTransport:
        def files(body: dict[str, Any]) -> dict[str, Any]:
            self.asked.append(body)
            return self.brokers[url] if url else {"files": self.alone}

        nodes = {"nodes": [{"url": one} for one in self.brokers]}
        self.transports.append(FakeTransport(actions={"history_files": files, "cluster": nodes}))
        return self.transports[-1]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def reader(*filters: Any) -> tuple[FilteringHistoryReader, list[Any]]:
    made = FilteringHistoryReader(Options.of({"topic": "t", "view": "history"}), SCHEMA)
    return made, list(made.pushFilters(list(filters)))


def stretches(*filters: Any) -> list[Stretch]:
    return cast(list[Stretch], reader(*filters)[0].partitions())


def files_of(*filters: Any) -> list[str]:
    return [one.ticket["file"] for one in stretches(*filters)]


def test_one_broker_is_asked_for_the_files_of_the_time_that_is_wanted(cluster: Cluster) -> None:
    cluster.alone = [file("a", 1), file("b", 2)]
    found = stretches(GreaterThanOrEqual(("at_ms",), 5), LessThan(("at_ms",), 9))
    times = {"at_from": 5, "at_to": 9}
    assert cluster.asked == [{"name": "t", **times}]
    assert [(one.url, one.ticket) for one in found] == [
        ("", {"op": "history", "topic": "t", "partition": n, "file": name, **times})
        for name, n in (("a", 1), ("b", 2))
    ]
    assert all(transport.is_closed for transport in cluster.transports)


def test_without_a_time_everything_is_read(cluster: Cluster) -> None:
    cluster.alone = [file("a")]
    [found] = stretches()
    assert (found.ticket["at_from"], found.ticket["at_to"]) == (0, ALWAYS_MS)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([GreaterThan(("at_ms",), 5)], (6, ALWAYS_MS)),
        ([LessThanOrEqual(("at_ms",), 5)], (0, 6)),
        ([GreaterThan(("at_ms",), 5), GreaterThan(("at_ms",), 2)], (6, ALWAYS_MS)),
        ([LessThan(("at_ms",), 5), LessThan(("at_ms",), 9)], (0, 5)),
    ],
)
def test_bounds_are_to_the_millisecond_and_the_narrower_holds(
    cluster: Cluster, filters: list[Any], bounds: tuple[int, int]
) -> None:
    cluster.alone = [file("a")]
    [found] = stretches(*filters)
    assert (found.ticket["at_from"], found.ticket["at_to"]) == bounds


def test_a_time_that_never_is_asks_nobody(cluster: Cluster) -> None:
    assert stretches(GreaterThan(("at_ms",), 5), LessThan(("at_ms",), 6)) == []
    assert cluster.transports == []


def test_only_partitions_that_are_wanted_are_read(cluster: Cluster) -> None:
    cluster.alone = [file("a", 0), file("b", 1), file("c", 2)]
    assert files_of(In(("partition",), (0, 2))) == ["a", "c"]
    assert files_of(In(("partition",), (0, 2)), EqualTo(("partition",), 2)) == ["c"]


def test_who_looks_for_gaps_reads_files_that_have_any(cluster: Cluster) -> None:
    cluster.alone = [file("a"), file("b", has_gaps=True)]
    assert files_of(EqualTo(("change",), "gap")) == ["b"]
    assert files_of(EqualTo(("change",), "acked")) == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "is_taken"),
    [
        (EqualTo(("topic",), "t"), True),
        (EqualTo(("topic",), "other"), False),
        (IsNotNull(("position",)), True),
        (IsNotNull(("key",)), False),
        (EqualTo(("change",), "gap"), False),  # other rows of such a file are left to Spark
        (EqualTo(("partition",), "1"), False),
        (EqualTo(("at_ms", "inner"), 1), False),
        (GreaterThan(("id",), 1), False),
        (LessThan(("id",), 1), False),
        (GreaterThan(("at_ms",), ALWAYS_MS), False),
        (LessThan(("at_ms",), -1), False),
    ],
)
def test_a_filter_that_is_not_understood_to_the_last_is_left_to_spark(
    cluster: Cluster, one: Any, is_taken: bool
) -> None:
    cluster.alone = [file("a", has_gaps=True)]
    made, left = reader(one)
    assert left == ([] if is_taken else [one])
    [found] = cast(list[Stretch], made.partitions())
    assert (found.ticket["at_from"], found.ticket["at_to"]) == (0, ALWAYS_MS)


def recorded(*files: dict[str, Any], **until: int) -> dict[str, Any]:
    return {"files": list(files), "recorded": {n.removeprefix("p"): p for n, p in until.items()}}


def hour(name: str, number: int, first: int, last: int, **more: Any) -> dict[str, Any]:
    return file(name, hour_ms=number * HOUR_MS, first=first, last=last, **{"gaps": []} | more)


def test_every_broker_of_a_cluster_is_asked_for_what_it_recorded__and_each_change_comes_once(
    cluster: Cluster,
) -> None:
    cluster.brokers = {
        "dejaq://a": recorded(hour("a", 1, 1, 10), p0=10),
        "dejaq://b": recorded(hour("b", 1, 6, 20), p0=20),
    }
    found = stretches()
    assert cluster.asked == [{"name": "t", "here": True}] * 2
    assert [(one.url, one.ticket["file"], one.ticket["positions"]) for one in found] == [
        ("dejaq://a", "a", [(1, 10)]),
        ("dejaq://b", "b", [(11, 20)]),
    ]
    assert all(one.ticket["here"] for one in found)
    assert all(transport.is_closed for transport in cluster.transports)


def test_of_a_cluster_only_hours_in_which_something_can_be_are_read(cluster: Cluster) -> None:
    files = [hour(str(n), n, 10 * n, 10 * n + 9) for n in range(1, 5)]
    cluster.brokers = {"dejaq://a": recorded(*files, p0=99)}
    bounds = GreaterThanOrEqual(("at_ms",), 2 * HOUR_MS), LessThan(("at_ms",), 4 * HOUR_MS)
    assert files_of(*bounds) == ["2", "3"]
    one_more = GreaterThanOrEqual(("at_ms",), 3 * HOUR_MS - 1)
    assert files_of(one_more) == ["2", "3", "4"]


def test_of_a_cluster_who_looks_for_gaps_reads_those_that_nobody_filled(cluster: Cluster) -> None:
    cluster.brokers = {
        "dejaq://a": recorded(hour("a", 1, 5, 9, gaps=[[5, 6]]), hour("c", 2, 10, 12), p0=12),
        "dejaq://b": recorded(hour("b", 1, 1, 5), p0=5),
    }
    [found] = stretches(EqualTo(("change",), "gap"))
    assert (found.ticket["file"], found.ticket["gaps"]) == ("a", [6])


def test_where_there_is_nothing_spark_asks_for_nothing() -> None:
    assert list(reader()[0].read(InputPartition(0))) == []
