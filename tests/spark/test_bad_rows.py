"""Covers: rows with bytes that are no text, read by a real Spark (rule 15): tables and queries.

Such bytes are on the broker's disk: a key, headers and a payload. Twice: as the broker hands them
out now; and as one hands them out that does not mend them, nor checked groups and tags when they
were sent, which is for the tasks of Spark to bear.
Not covered: the other clients (tests/integration/test_bad_rows.py); several processes
(test_cluster.py); what is damaged (test_damaged_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic
from dejaqueue.schema.checks import SendColumns
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORD, BAD = b"@@", b"\xc3\x28"  # equally long
MENDED = "\ufffd("
COUNT = 6
BAD_ROW = 2
PAST_MS = 1_600_000_000_000
SCHEMA = (
    "id bigint, key string, `group` string, tags array<string>, headers map<string,string>, "
    "payload binary"
)


def expected(*, is_mended: bool) -> list[dict[str, Any]]:
    found = []
    for row in range(COUNT):
        word = MENDED if row == BAD_ROW else str(row)
        checked = WORD.decode() if row == BAD_ROW and is_mended else word
        payload = BAD if row == BAD_ROW else b"%d" % row
        found.append(
            {
                "id": row,
                "key": word,
                "group": checked,
                "tags": ["tag", checked],
                "headers": [("name", word)],
                "payload": payload,
            }
        )
    return found


def text(contents: list[bytes]) -> pa.StringArray:
    return pa.array(contents, pa.binary()).view(pa.utf8())


def store(broker: Broker) -> None:
    """Messages that are due, of which one has BAD where no broker looks, and WORD elsewhere."""
    words = [BAD if row == BAD_ROW else b"%d" % row for row in range(COUNT)]
    checked = [WORD if row == BAD_ROW else b"%d" % row for row in range(COUNT)]
    columns = SendColumns(
        rows=COUNT,
        dues_ms=np.full(COUNT, PAST_MS, dtype=np.int64),
        payloads=pa.array(words, pa.binary()),
        keys=text(words),
        groups=text(checked),
        tags=text([b"tag\x1f" + word for word in checked]),
        headers=text([b"name\x1f" + word for word in words]),
        partitions=None,
        payload_bytes=sum(map(len, words)),
    )
    replied: Future[Reply] = Future()
    broker.open_write(WriteStream("t")).submit_columns(1, columns, None, replied.set_result)
    assert replied.result(PATIENCE_SECONDS).error is None


def read_unmended(journal: Journal, *rest: Any) -> pa.RecordBatch:
    """Stored rows as they are, with BAD in place of WORD."""
    batch = journal.read(*rest)
    content = batch.serialize().to_pybytes()
    return pa.ipc.read_record_batch(pa.py_buffer(content.replace(WORD, BAD)), batch.schema)


class Site:
    """A broker on a disk, whose messages were there before it started."""

    def __init__(self, data: Path, *, is_mended: bool) -> None:
        self._data, self.is_mended = data, is_mended
        before = self._started()
        before.create_topic(Topic("t"))
        store(before)
        before.stop()
        self.broker = self._started()
        self.flight = FlightServer(self.broker)
        self.flight.start()

    def _started(self) -> Broker:
        broker = Broker(BrokerSettings(journal=JournalSettings(url=str(self._data))))
        broker.start()
        return broker

    def stop(self) -> None:
        self.flight.stop()
        self.broker.stop()


@pytest.fixture(params=[True, False], ids=["mended", "unmended"])
def site(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Site]:
    if not request.param:
        monkeypatch.setattr("dejaqueue.broker.calls.scan.read_stored", read_unmended)
    site = Site(tmp_path / "data", is_mended=request.param)
    yield site
    site.stop()


def drain(spark: SparkSession, site: Site, schema: str, folder: Path) -> list[dict[str, Any]]:
    """What a query reads until nothing is due, in order of the ids where they are asked for."""
    reader = spark.readStream.format("dejaq").option("url", site.flight.url).schema(schema)
    writer = reader.load("t").writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(100)
    assert not query.isActive
    [file] = (folder / "out").glob("*.parquet")
    rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return sorted(rows, key=lambda row: row.get("id", 0))


def load(spark: SparkSession, site: Site, schema: str) -> list[dict[str, Any]]:
    reader = spark.read.format("dejaq").option("url", site.flight.url).schema(schema)
    rows: list[dict[str, Any]] = reader.load("t").toArrow().to_pylist()
    return sorted(rows, key=lambda row: row.get("id", 0))


def test_a_table_has_every_row__and_marks_where_one_is_no_text(
    spark: SparkSession, site: Site
) -> None:
    assert load(spark, site, SCHEMA) == expected(is_mended=site.is_mended)


def test_a_query_gets_every_row__and_acks_them_all(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    assert drain(spark, site, SCHEMA, tmp_path) == expected(is_mended=site.is_mended)
    counts = site.broker.call("counts", {"topic": "t", "by": "state"})
    assert [row for row in counts["rows"] if row["count"]] == []


PAYLOADS = [MENDED if row == BAD_ROW else str(row) for row in range(COUNT)]


@pytest.mark.parametrize("reads", ["table", "query"])
def test_a_payload_that_is_no_text_harms_no_other_row__where_it_is_read_as_a_string(
    spark: SparkSession, site: Site, tmp_path: Path, reads: str
) -> None:
    schema = "id bigint, payload string"
    is_table = reads == "table"
    rows = load(spark, site, schema) if is_table else drain(spark, site, schema, tmp_path)
    assert [row["payload"] for row in rows] == PAYLOADS
