"""Covers: pipelines as programs: a Spark of their own on loopback alone, one that is there, errors.

Not covered: command lines without Spark (tests/unit/pipelines/frame), what the pipelines do
(test_campaign.py, test_forecast.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import dejaqueue
from dejaqueue.cli.demo.sockets import beyond_loopback
from dejaqueue.pipelines.frame import Run
from dejaqueue.pipelines.frame.progress import Quiet
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

QUICK = [
    "--conf=spark.driver.memory=512m",
    "--conf=spark.sql.codegen.wholeStage=false",
    "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "--conf=spark.sql.shuffle.partitions=1",
]
SOURCE = str(Path(dejaqueue.__file__).parents[1])


def call(*words: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, with a Spark of its own if it needs one."""
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": SOURCE, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.slow
def test_a_pipeline_is_a_program_with_a_spark_of_its_own(
    broker: BrokerProcess, client: dejaqueue.Client, make_topic: Callable[..., str]
) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    topic = make_topic()
    client.send_batch(topic, pa.table({"payload": [b"x"] * 5, "due": [2_000_000_000_000] * 5}))
    file = Path(SOURCE) / "dejaqueue/pipelines/forecast.py"
    options = ["--topic", topic, "--from", "2033-05-18T00:00:00Z", "--url", broker.url, "--json"]
    options += ["--master", "local[1]", *QUICK]
    found = call(str(file), *options)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["due"] == 5
    # What Spark says of itself when it starts is not the user's.
    said = [line.partition(":")[0] for line in found.stderr.splitlines() if "…" not in line]
    assert said == ["starting Spark on local[1]", "counting what is due"]


def test_dejaq_finds_pipelines_and_tells_errors_in_one_line(
    spark: SparkSession, broker: BrokerProcess, make_topic: Callable[..., str]
) -> None:
    from click.testing import CliRunner

    from dejaqueue.cli.main import main

    options = [
        "--campaign",
        "c",
        "--topic",
        make_topic(),
        "--on",
        "2027-03-01",
        "--url",
        broker.url,
    ]
    words = ["pipeline", "campaign", *options, "--template", "x", "--audience", "nowhere.parquet"]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 2
    last = found.stderr.splitlines()[-1]
    assert last.startswith("error: Spark: [PATH_NOT_FOUND]")
    assert CliRunner().invoke(main, ["pipeline", "nothing"]).exit_code == 2
    assert "forecast" in CliRunner().invoke(main, ["pipeline", "--help"]).stdout
    # The session was there before, and is there still.
    assert spark.range(3).count() == 3


def test_a_run_starts_spark_when_it_is_asked_for_and_leaves_its_zone(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with Run(progress=Quiet()) as run:
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert run.spark is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


def test_nothing_of_a_local_spark_is_open_to_others(spark: SparkSession) -> None:
    spark.range(10).count()
    assert beyond_loopback(os.getpid()) == []
