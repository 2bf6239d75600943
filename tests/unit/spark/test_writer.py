"""A table as a schedule: staged by tasks, decided once. A real broker; tasks run in this process.

Not covered: tasks of Spark that fail or are done twice (tests/spark/test_batch.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from dejaqueue import Client
from dejaqueue.client.branch import Staged
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.model import RowStatus
from dejaqueue.spark import refusals, writes
from dejaqueue.spark.options import Options
from dejaqueue.spark.writer import TaskStaged, Writer, branch_name, check_summary, summary
from tests.integration.access_fixture import running

Messages = list[WriterCommitMessage | None]
FUTURE_MS = 4_000_000_000_000
SCHEMA = StructType(
    [
        StructField("payload", BinaryType()),
        StructField("key", StringType()),
        StructField("due", LongType()),
    ]
)


class Site:
    """A broker, and a topic of two partitions."""

    def __init__(self, url: str, client: Client, folder: Path) -> None:
        self.url, self.client, self.folder = url, client, folder

    def options(self, **more: str) -> Options:
        path = {"refusals.path": str(self.folder / "refused")}
        return Options.of({"topic": "t", "url": self.url, **path, **more})

    def writer(self, **more: str) -> Writer:
        return Writer(self.options(**more), SCHEMA)

    @property
    def keys(self) -> list[str]:
        return sorted(self.client.peek("t", limit=99)["key"].to_pylist())

    @property
    def staged(self) -> int:
        return int(self.client.stats("t")["staged"])

    @property
    def files(self) -> list[str]:
        folder = self.folder / "refused"
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return [name.partition("-")[0] for name in sorted(names)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running() as running_site, Client(running_site.flight.url) as client:
        client.create_topic("t", partitions=2)
        yield Site(running_site.flight.url, client, tmp_path)


def rows(*keys: str) -> Iterator[pa.RecordBatch]:
    """A batch for each key, and an empty one."""
    for key in keys:
        yield pa.record_batch({"payload": [b"p"], "key": [key], "due": [FUTURE_MS]})
    if keys:
        yield pa.record_batch({"payload": [b"p"], "key": ["x"], "due": [FUTURE_MS]}).slice(1)


def test_rows_are_there_when_the_job_is_decided_and_not_before(site: Site) -> None:
    writer = site.writer()
    there = pickle.loads(pickle.dumps(writer))
    messages = [there.write(rows("a", "b")), there.write(rows("c"))]
    assert site.keys == []
    writer.commit(pickle.loads(pickle.dumps(messages)))
    assert (site.keys, site.staged) == (["a", "b", "c"], 0)
    [told] = writes(url=site.url, topic="t")
    assert (told.counts, told.is_committed) == ({"OK": 3}, True)


def test_an_attempt_that_spark_does_not_count_never_was(site: Site) -> None:
    writer = site.writer()
    writer.write(rows("lost"))
    counted = writer.write(rows("won"))
    writer.commit([counted, None])
    assert (site.keys, site.staged) == (["won"], 0)


def test_an_aborted_job_leaves_nothing(site: Site) -> None:
    writer = site.writer()
    messages = [writer.write(rows("a")), None]
    writer.abort(messages)
    assert (site.keys, site.staged, site.files) == ([], 0, [])


def test_a_task_that_fails_takes_its_rows_with_it_at_once(site: Site) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows("a", "b")
        raise RuntimeError("planted")

    writer = site.writer()
    with pytest.raises(RuntimeError, match="planted"):
        writer.write(failing())
    assert site.staged == 0
    writer.commit([writer.write(rows("c"))])
    assert site.keys == ["c"]


def test_refused_rows_are_counted_and_kept__and_the_others_are_written(site: Site) -> None:
    site.client.send("t", b"old", key="a", due=FUTURE_MS)
    writer = site.writer()
    writer.commit([writer.write(rows("a", "b"))])
    assert site.keys == ["a", "b"]
    assert site.files == ["_counts", "refused"]
    assert refusals.status_counts(str(site.folder / "refused")) == {"OK": 1, "DUPLICATE": 1}


def test_where_refusals_fail_the_job_nothing_is_written__and_it_is_known_what_was_refused(
    site: Site,
) -> None:
    site.client.send("t", b"old", key="a", due=FUTURE_MS)
    writer = site.writer(refusals="fail")
    messages: Messages = [writer.write(rows("a", "b"))]
    with pytest.raises(Refused, match="topic t: 1 DUPLICATE of 2 rows"):
        writer.commit(messages)
    assert (site.keys, site.staged, site.files) == (["a"], 0, ["_counts", "refused"])
    [told] = writes(url=site.url, topic="t")
    assert (told.counts, told.is_committed) == ({"OK": 1, "DUPLICATE": 1}, False)


def test_an_aborted_job_forgets_what_was_refused(site: Site) -> None:
    site.client.send("t", b"old", key="a", due=FUTURE_MS)
    writer = site.writer()
    messages: Messages = [writer.write(rows("a"))]
    assert site.files == ["_staged"]
    writer.abort(messages)
    assert site.files == []


def test_a_row_without_a_payload_is_named_and_nothing_is_staged(site: Site) -> None:
    batch = pa.record_batch({"payload": pa.array([b"a", None], pa.binary())})
    writer = site.writer()
    with pytest.raises(BadRequest, match="null in row 1"):
        writer.write(iter([batch]))
    assert site.staged == 0


def test_no_two_attempts_have_one_name() -> None:
    assert len({branch_name() for _ in range(100)}) == 100


def staged(**counts: int) -> TaskStaged:
    found = Staged(counts={RowStatus[name]: count for name, count in counts.items()})
    return TaskStaged("b", found)


def test_counts_of_tasks_are_added() -> None:
    found = summary([staged(OK=2), staged(OK=3, KEPT=1), staged()])
    assert found == {"OK": 5, "KEPT": 1}


def test_what_was_refused_is_said(caplog: pytest.LogCaptureFixture) -> None:
    options = Options.of({"topic": "t"})
    check_summary(options, [staged(OK=2), staged(KEPT=1, DUPLICATE=4)])
    assert "topic t: 4 DUPLICATE, 1 KEPT of 7 rows were not written" in caplog.text
    strict: dict[str, Any] = {"topic": "t", "refusals": "fail"}
    check_summary(Options.of(strict), [staged(OK=2)])
    with pytest.raises(Refused):
        check_summary(Options.of(strict), [staged(KEPT=1)])
