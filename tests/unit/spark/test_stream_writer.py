"""Epochs of a query, each once however often it is written. A real broker; Spark stands aside.

Not covered: drivers and tasks that are killed (tests/spark/test_stream_write.py, test_cluster.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from dejaqueue import Client
from dejaqueue.errors import InternalError, Refused
from dejaqueue.spark import refusals, writes
from dejaqueue.spark import stream_writer as module
from dejaqueue.spark.options import Options
from dejaqueue.spark.stream_writer import EPOCH_PROPERTY, QUERY_PROPERTY, StreamWriter
from dejaqueue.spark.writer import TaskStaged
from tests.integration.access_fixture import running

FUTURE_MS = 4_000_000_000_000
SCHEMA = StructType(
    [
        StructField("payload", BinaryType()),
        StructField("key", StringType()),
        StructField("due", LongType()),
    ]
)


class Site:
    """A broker with a topic, and the epoch that tasks are told they belong to."""

    def __init__(self, url: str, client: Client, folder: Path) -> None:
        self.url, self.client, self.folder = url, client, folder
        self.properties: dict[str, str | None] = {QUERY_PROPERTY: "q", EPOCH_PROPERTY: "0"}

    def writer(self, **more: str) -> StreamWriter:
        path = {"refusals.path": str(self.folder)}
        return StreamWriter(Options.of({"topic": "t", "url": self.url, **path, **more}), SCHEMA)

    def epoch(self, number: int, *keys: str, query: str = "q") -> list[TaskStaged]:
        """One task for each key."""
        self.properties = {QUERY_PROPERTY: query, EPOCH_PROPERTY: str(number)}
        writer = self.writer()
        return [cast(TaskStaged, writer.write(rows(key))) for key in keys]

    @property
    def keys(self) -> list[str]:
        return sorted(self.client.peek("t", limit=99)["key"].to_pylist())

    @property
    def staged(self) -> int:
        return int(self.client.stats("t")["staged"])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with running() as running_site, Client(running_site.flight.url) as client:
        client.create_topic("t", partitions=2)
        site = Site(running_site.flight.url, client, tmp_path)
        context = SimpleNamespace(getLocalProperty=lambda name: site.properties[name])
        monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
        yield site


def rows(*keys: str) -> Iterator[pa.RecordBatch]:
    for key in keys:
        yield pa.record_batch({"payload": [b"p"], "key": [key], "due": [FUTURE_MS]})


def test_an_epoch_is_there_when_it_is_committed_and_not_before(site: Site) -> None:
    done = site.epoch(0, "a", "b")
    assert site.keys == []
    site.writer().commit([*done, None], 0)
    assert (site.keys, site.staged) == (["a", "b"], 0)
    [told] = writes(url=site.url, topic="t")
    assert (told.label, told.epoch, told.counts) == ("q", 0, {"OK": 2})


def test_an_epoch_that_is_written_again_after_its_commit_is_there_once(site: Site) -> None:
    """The driver died between its commit and its checkpoint."""
    site.writer().commit(list(site.epoch(0, "a", "b")), 0)
    again = site.epoch(0, "a", "b")
    assert [task.is_repeat for task in again] == [True, True]
    assert site.staged == 0
    site.writer().commit(list(again), 0)
    assert site.keys == ["a", "b"]
    assert len(writes(url=site.url, topic="t")) == 1, "and it is told once"
    assert refusals.status_counts(str(site.folder)) == {"OK": 2}


def test_an_epoch_that_is_written_again_before_its_commit_is_there_once(site: Site) -> None:
    """The driver died before its commit: what was staged then does not count."""
    site.epoch(0, "a", "b")
    site.writer().commit(list(site.epoch(0, "a", "b")), 0)
    assert (site.keys, site.staged) == (["a", "b"], 0)


def test_the_next_epoch_and_another_query_are_no_repeats(site: Site) -> None:
    site.writer().commit(list(site.epoch(0, "a")), 0)
    site.writer().commit(list(site.epoch(1, "b")), 1)
    site.writer().commit(list(site.epoch(0, "c", query="other")), 0)
    assert site.keys == ["a", "b", "c"]


def test_an_epoch_without_tasks_asks_nobody(site: Site) -> None:
    away = Options.of({"topic": "t", "url": "dejaq://127.0.0.1:1"})
    StreamWriter(away, SCHEMA).commit([None], 0)
    assert writes(url=site.url, topic="t") == []


def test_an_aborted_epoch_leaves_nothing__and_can_be_written_again(site: Site) -> None:
    done = site.epoch(0, "a")
    site.writer().abort([*done, None], 0)
    assert site.staged == 0
    site.writer().commit(list(site.epoch(0, "a")), 0)
    assert site.keys == ["a"]


def test_where_refusals_fail_the_query_the_epoch_is_not_committed(site: Site) -> None:
    site.client.send("t", b"old", key="a", due=FUTURE_MS)
    done = site.epoch(0, "a", "b")
    with pytest.raises(Refused, match="1 DUPLICATE of 2 rows"):
        site.writer(refusals="fail").commit(list(done), 0)
    assert site.keys == ["a"]
    assert writes(url=site.url, topic="t") == []


@pytest.mark.parametrize("name", [QUERY_PROPERTY, EPOCH_PROPERTY])
def test_a_task_that_is_not_told_its_epoch_stages_nothing(site: Site, name: str) -> None:
    site.properties[name] = None
    with pytest.raises(InternalError, match="which epoch of which query"):
        site.writer().write(rows("a"))
    assert site.staged == 0


def test_outside_of_a_task_there_is_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Any = SimpleNamespace(get=lambda: None)
    monkeypatch.setattr(module, "TaskContext", nobody)
    with pytest.raises(InternalError, match="which epoch of which query"):
        module._query_and_epoch()
