"""Covers: count by key in = count by key out, whatever process of Spark is killed.

Spark runs on a master and two workers with an executor each, all processes of their own. Rows have
no keys: nothing but transactions tells what was done twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.client.flight_transport import FlightTransport
from tests.crash.broker_process import BrokerProcess
from tests.spark.scenarios import ROWS
from tests.spark.standalone import ENVIRONMENT, Standalone
from tests.spark.test_stream_read import fill

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 300
DRAINED = 1_500

pytestmark = [pytest.mark.slow, pytest.mark.crash]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    if shutil.which("java") is None:
        pytest.skip("no Java: scripts/install_java.sh")
    started = Standalone(tmp_path_factory.mktemp("spark") / "cluster")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def topics(broker: BrokerProcess, tmp_path: Path) -> Iterator[Path]:
    """Topics for a scenario, and the folder that it is given."""
    names = ["rivals", "killed", "source", "stream"]
    with dejaqueue.Client(broker.url) as client:
        for name in names:
            client.create_topic(name, partitions=2)
        fill(client, "source", 0, DRAINED)
        yield tmp_path
        for name in names:
            client.delete_topic(name)


def run(name: str, broker: BrokerProcess, folder: Path, master: str) -> int:
    """The exit status of a scenario."""
    arguments = [name, broker.url, str(folder), master]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.scenarios", *arguments],
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return process.wait(SECONDS_MAX - 20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what a killed driver left
            process.wait()


def payloads(broker: BrokerProcess, topic: str) -> Counter[bytes]:
    transport = FlightTransport(broker.url)
    try:
        found: Counter[bytes] = Counter()
        for number in (0, 1):
            ticket = {"topic": topic, "partition": number, "columns": ["payload"]}
            for batch in transport.scan(ticket):
                found.update(batch.column(0).to_pylist())
        return found
    finally:
        transport.close()


def left(broker: BrokerProcess, topic: str) -> dict[str, int]:
    with dejaqueue.Client(broker.url) as client:
        return {name: count for name, count in client.counts(topic).items() if count}


def drained(rows: int) -> Counter[bytes]:
    return Counter(b"p%d" % number for number in range(rows))


def test_executors_are_killed_and_tasks_are_done_twice__each_row_is_there_once(
    cluster: Standalone, broker: BrokerProcess, topics: Path
) -> None:
    status = run("cluster", broker, topics, cluster.url)
    assert status == 0, (topics / "log").read_text()[-4_000:]
    whole = Counter(b"p%d" % number for number in range(ROWS))
    assert (topics / "0-1").exists()
    assert not (topics / "no rival came").exists()
    assert payloads(broker, "rivals") == whole
    assert (topics / "killed").exists()
    assert payloads(broker, "killed") == whole
    assert (topics / "stream-killed").exists()
    assert payloads(broker, "stream") == drained(DRAINED)
    assert left(broker, "source") == {}
    assert "staged" not in left(broker, "killed") | left(broker, "stream")


def test_the_driver_is_killed_and_starts_again_from_its_checkpoint__each_row_is_there_once(
    cluster: Standalone, broker: BrokerProcess, topics: Path
) -> None:
    assert run("driver", broker, topics, cluster.url) == -signal.SIGKILL, (
        topics / "log"
    ).read_text()[-4_000:]
    assert payloads(broker, "stream") == drained(500)
    assert run("driver", broker, topics, cluster.url) == 0, (topics / "log").read_text()[-4_000:]
    assert payloads(broker, "stream") == drained(DRAINED)
    assert left(broker, "source") == {}
    assert "staged" not in left(broker, "stream")
