"""Covers: a forecast of a real topic: the same counts by Spark and by the broker, and its advice.

Not covered: what a load asks for (tests/unit/pipelines/load).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import dejaqueue
from dejaqueue.errors import BadRequest
from dejaqueue.pipelines import forecast
from dejaqueue.pipelines.frame import Outcome, Run
from dejaqueue.pipelines.frame.progress import Quiet
from tests.crash.broker_process import BrokerProcess
from tests.unit.report.test_page import check_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 2_000_000_000_000
HOT_MS = START_MS + 3_600_000 + 123


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    """5,000 messages over two hours, 700 of them in one millisecond; 3 before and 2 after."""
    dues = np.concatenate(
        [
            START_MS + np.arange(4_300) * 1_000,
            np.full(700, HOT_MS),
            [START_MS - 1, 1_600_000_000_000, 1_600_000_000_001],
            [START_MS + 7_200_000] * 2,
        ]
    )
    with dejaqueue.Client(broker.url) as client:
        client.create_topic("load", partitions=2)
        payloads = pa.array([b"x"] * len(dues), pa.binary())
        # Due already, but leased by nobody.
        client.send_batch("load", pa.table({"payload": payloads, "due": dues}))
    return "load"


def run(spark: SparkSession | None, broker: BrokerProcess, topic: str, **given: Any) -> Outcome:
    settings = {"url": broker.url, "topic": topic, "from_ms": START_MS, "ahead_ms": "2h"}
    with Run(spark, progress=Quiet()) as running:
        return forecast.run(forecast.Options.of(settings | given), running)


def test_spark_and_the_broker_count_the_same(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    scanned = run(spark, broker, topic, report=str(page), consumer_rate=100).figures
    asked = run(None, broker, topic, source="broker", consumer_rate=100).figures
    assert {**scanned, "report": None} == {**asked, "report": None}
    assert (scanned["due"], scanned["due_before"]) == (5_000, 3)
    assert (scanned["peak_per_second"], scanned["peak_second"]) == (701, "2033-05-18T04:33:20.000Z")
    assert scanned["peak_per_minute"] == 760
    assert scanned["hot"][0] == {
        "second": "2033-05-18T04:33:20.000Z", "due": 701, "due_in_one_ms": 700,
    }  # fmt: skip
    assert len(scanned["hot"]) == 10
    # 701 at once have to be done within a second.
    assert scanned["needed_per_second"] == pytest.approx(701)
    assert (scanned["consumers"], scanned["partitions"], scanned["partitions_now"]) == (8, 1, 2)
    check_page(page.read_text(encoding="utf-8"))


def test_whoever_can_wait_needs_less(broker: BrokerProcess, topic: str) -> None:
    patient = run(None, broker, topic, source="broker", lateness_ms="10m", hot=0).figures
    assert patient["needed_per_second"] < 4
    assert patient["hot"] == []


def test_what_a_partition_carries_can_be_measured(
    broker: BrokerProcess, topic: str, client: dejaqueue.Client
) -> None:
    before = {found.name for found in client.topics()}
    figures = run(None, broker, topic, source="broker", measure=True).figures
    assert figures["partition_rate"] > 1_000
    assert {found.name for found in client.topics()} == before


def test_nothing_due_needs_nothing(
    spark: SparkSession, broker: BrokerProcess, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    figures = run(spark, broker, make_topic(), report=str(page)).figures
    assert (figures["due"], figures["consumers"], figures["peak_per_hour"]) == (0, 0, 0)
    check_page(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("ahead_ms", "2s3", "--ahead: a time is like"),
        ("ahead_ms", "500d", "--ahead: from 1s to 366d"),
        ("lateness_ms", "0ms", "--lateness: at least 1ms"),
        ("consumer_rate", 0, "--consumer-rate: a number"),
        ("hot", 101, "--hot: a whole number from 0 to 100"),
        ("source", "guess", "--source: one of scan, broker"),
    ],
)
def test_wrong_options_are_told_by_their_names(
    broker: BrokerProcess, topic: str, option: str, value: object, said: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        run(None, broker, topic, **{option: value})
    assert str(refused.value).startswith(said)
