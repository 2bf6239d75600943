"""Covers: the data source through Spark Connect: a client in a process of its own.

The client speaks gRPC with a server that it starts, and does not touch its JVM. What jobs and
queries do is the same code in the same workers as without Connect: one of each is enough here.
Connect starts a Python of its own for each step of a query, which takes a minute: `make
spark-heavy` runs this, `make test` does not.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.spark.standalone import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
MakeTopic = Callable[..., str]
ROWS = 2_000
SECONDS_MAX = 300
NEEDED = ("grpc", "grpc_status", "google", "zstandard")
ANY_PORT = {"SPARK_TESTING": "1"}
"""Has Spark's server take a free port instead of its usual one."""


@pytest.fixture
def needed() -> None:
    """Skip where nobody asked for it, or there is no Connect, or no Java."""
    if os.environ.get("SPARK_HEAVY") != "1":
        pytest.skip("make spark-heavy")
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    if shutil.which("java") is None:
        pytest.skip("no Java: scripts/install_java.sh")
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"the extra `connect` is not installed: no {name}")


@pytest.mark.slow
@pytest.mark.may_skip
def test_a_client_of_connect_writes_reads_and_streams(
    needed: None,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    source, target = make_topic(), make_topic()
    arguments = [broker.url, source, target, str(tmp_path), str(ROWS)]
    process = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", *arguments],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | ANY_PORT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX - 20,
    )
    assert process.returncode == 0, process.stderr[-4_000:]
    said = json.loads(process.stdout.splitlines()[-1])
    assert said == {"rows": ROWS, "filtered": 10, "wrong": True}
    assert not any(client.counts(source).values())
    got = client.peek(target, limit=10_000)["payload"].to_pylist()
    assert sorted(got) == sorted(b"p%d" % number for number in range(ROWS))
