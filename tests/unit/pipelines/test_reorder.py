"""Covers: options of `reorder`. What it does: tests/spark/test_reorder.py."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines import reorder
from dejaqueue.pipelines.frame import Run

GIVEN = {
    "kafka": "h:9092",
    "from_topic": "a",
    "to_topic": "b",
    "topic": "waiting",
    "column": "timestamp",
    "state": "/tmp/state",
}


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ({"by": "colour"}, "--by"),
        ({"column": ""}, "--column"),
        ({"topic": "a/b"}, "topic"),
        ({"max_rows": "0"}, "--max-rows"),
        ({"every_ms": "2h"}, "--every"),
        ({"start": "now"}, "--start"),
    ],
)
def test_a_wrong_option_is_named(more: dict[str, Any], option: str) -> None:
    with pytest.raises(BadRequest, match=option):
        reorder.Options.of(GIVEN | more)


@pytest.mark.parametrize(
    ("more", "option"),
    [({"to_topic": "a"}, "--to-topic"), ({"kafka_option": ("topic=x",)}, "--kafka-option")],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(
    more: dict[str, Any], option: str
) -> None:
    options = reorder.Options.of(GIVEN | more)
    with Run() as run, pytest.raises(BadRequest, match=option):
        reorder.run(options, run)


def test_spark_starts_with_its_part_for_kafka__of_its_own_version() -> None:
    pyspark = pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    package = reorder.needs(reorder.Options.of(GIVEN))["spark.jars.packages"]
    assert package == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
