"""Covers: Spark finds the format `dejaq` by itself, in a session where nobody registered it.

Not covered: what the format does (the files beside this one, which register it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def fresh(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark.newSession()
    spark.createDataFrame([(1,)], "number int")  # whichever session did this last is the active one


def test_a_session_that_registers_nothing_writes_and_reads(
    fresh: SparkSession,
    broker: BrokerProcess,
    client: dejaqueue.Client,
    make_topic: Callable[..., str],
) -> None:
    topic = make_topic()
    table = fresh.createDataFrame([("a",), ("b",)], "payload string")
    soon = table.selectExpr("payload", "4000000000000L due")
    soon.write.format("dejaq").option("url", broker.url).mode("append").save(topic)
    assert client.stats(topic).scheduled == 2
    back = fresh.read.format("dejaq").option("url", broker.url).load(topic)
    assert sorted(bytes(row["payload"]) for row in back.collect()) == [b"a", b"b"]
