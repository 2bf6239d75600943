"""Covers: what the guide and the example about Spark say runs as it stands there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def in_utc(spark: SparkSession) -> SparkSession:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def test_the_guides_blocks_run(
    in_utc: SparkSession, broker: BrokerProcess, client: dejaqueue.Client, tmp_path: Path
) -> None:
    client.create_topic("reminders", partitions=2)
    text = (ROOT / "docs/guides/spark.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 5
    client.create_topic("alarms")
    client.send("alarms", b"wake up", key="k")
    names = {"spark": in_utc, "folder": str(tmp_path)}
    for block in blocks:
        exec(block.replace("dejaq://localhost:7464", broker.url), names)
    [alarm] = parquet.read_table(tmp_path / "alarms").to_pylist()
    assert (alarm["key"], alarm["payload"]) == ("k", b"wake up")
    assert {b"Good morning, ada", b"Good morning, bob"} <= set(
        client.peek("reminders", limit=10_000)["payload"].to_pylist()
    )


def test_the_example_prints_what_it_says(
    in_utc: SparkSession, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "examples/50-spark/schedule.py"
    loaded = importlib.util.spec_from_file_location("spark_example", path)
    assert loaded is not None
    assert loaded.loader is not None
    example = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(example)
    example.main(broker.url, in_utc)
    assert capsys.readouterr().out == (path.parent / "output.txt").read_text(encoding="utf-8")
