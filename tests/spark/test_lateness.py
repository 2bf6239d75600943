"""Covers: what measures the lateness of a streaming query by its trigger, on the session of these
tests; and that Spark refuses its two other triggers to a source that is written in Python.

Not covered: figures (`make bench-spark`); a topic as the source (test_stream_read.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.questions import spark_lateness
from bench.questions.spark_lateness import PER_SECOND, REFUSED, TRIGGERS, Clocked, Reading, refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(spark_lateness.clocked_source())
    return spark


@pytest.mark.parametrize("trigger", ["as_fast", "available_now"])
def test_each_row_is_counted_once__and_none_is_early(session: SparkSession, trigger: str) -> None:
    measured = Reading(session, Clocked(), TRIGGERS[trigger]).run(0.5)
    assert len(measured.late_ms) == PER_SECOND // 2
    assert min(measured.late_ms) >= 0
    assert measured.figures("as_fast")["batch"] > 0


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ("realTime", "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED"),
        ("continuous", "continuous"),
    ],
)
def test_spark_refuses_a_trigger_to_a_source_in_python(
    session: SparkSession, trigger: str, said: str
) -> None:
    assert said.lower() in refusal(session, REFUSED[trigger]).lower()
