"""Covers: rows with bytes that are no text, read by a real Spark (rule 15): tables and queries.

The broker, in this process, sends such bytes in place of a word, whatever field it is in, as one
would that let them in and does not mend them. Tasks of Spark read from it over the network.
Not covered: the other clients (tests/integration/test_bad_rows.py); several processes
(test_cluster.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dejaqueue import Client
from dejaqueue.broker.calls import scan
from dejaqueue.model import Topic
from dejaqueue.schema.messages import HEADERS
from tests.integration.access_fixture import Site, running

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


def expected() -> list[dict[str, Any]]:
    found = []
    for row in range(COUNT):
        word = MENDED if row == BAD_ROW else str(row)
        payload = BAD if row == BAD_ROW else b"%d" % row
        found.append(
            {
                "id": row,
                "key": word,
                "group": word,
                "tags": ["tag", word],
                "headers": [("name", word)],
                "payload": payload,
            }
        )
    return found


def spoilt(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with BAD in place of WORD, in every column."""
    content = batch.serialize().to_pybytes()
    return pa.ipc.read_record_batch(pa.py_buffer(content.replace(WORD, BAD)), batch.schema)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A broker with COUNT messages that are due, of which one has WORD in every field."""
    batch_of = scan._batch
    monkeypatch.setattr(scan, "_batch", lambda *given: spoilt(batch_of(*given)))
    words = [WORD.decode() if row == BAD_ROW else str(row) for row in range(COUNT)]
    table = {
        "payload": pa.array([word.encode() for word in words]),
        "due": [PAST_MS] * COUNT,
        "key": words,
        "group": words,
        "tags": [["tag", word] for word in words],
        "headers": pa.array([[("name", word)] for word in words], HEADERS),
    }
    with running() as site:
        site.broker.create_topic(Topic("t"))
        with Client(site.flight.url) as client:
            client.send_batch("t", pa.table(table)).raise_for_status()
        yield site


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
    assert load(spark, site, SCHEMA) == expected()


def test_a_query_gets_every_row__and_acks_them_all(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    assert drain(spark, site, SCHEMA, tmp_path) == expected()
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
