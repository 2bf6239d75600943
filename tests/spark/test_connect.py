"""Covers: the data source through Spark Connect: a thin client in a process of its own.

The server is the tests' Spark, the client has no JVM. What jobs and queries do is the same code in
the same workers as without Connect, so one of each is enough here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.spark.standalone import ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
MakeTopic = Callable[..., str]
ROWS = 2_000
NEEDED = ("grpc", "grpc_status", "google.rpc", "zstandard")


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """The address of a Connect server inside of the session's JVM."""
    for name in NEEDED:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            pytest.skip(f"the extra `connect` is not installed: no {name}")
    service: Any = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService  # type: ignore[union-attr]
    spark.conf.set("spark.connect.grpc.binding.port", "0")
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(None, None)


def test_a_client_without_a_jvm_writes_reads_and_streams(
    server: str,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    source, target = make_topic(), make_topic()
    arguments = [server, broker.url, source, target, str(tmp_path), str(ROWS)]
    process = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", *arguments],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert process.returncode == 0, process.stderr[-4_000:]
    said = json.loads(process.stdout.splitlines()[-1])
    assert said == {"rows": ROWS, "filtered": 10, "wrong": True}
    assert not any(client.counts(source).values())
    got = client.peek(target, limit=10_000)["payload"].to_pylist()
    assert sorted(got) == sorted(b"p%d" % number for number in range(ROWS))
