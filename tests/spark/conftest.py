"""One Spark and one broker, each a real process, for all tests of this folder.

Starting Spark takes seconds and a quarter of a gigabyte: there is one session with two threads, and
what needs several processes (test_cluster.py) has one of its own, when this one has stopped.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.spark import kafka_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS_MAX = 3
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_spark(master: str, **settings: object) -> SparkSession:
    """A session whose workers run this interpreter and this code."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.master(master).config("spark.ui.enabled", "false")
    # Whoever has no network has a host name that leads nowhere.
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.memory", "512m")
    # Where others work, too, a Python takes its time to start.
    builder = builder.config("spark.python.authenticate.socketTimeout", "60s")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    # Tests are short: nothing is gained by compiling what runs once.
    builder = builder.config("spark.sql.codegen.wholeStage", "false")
    builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    builder = builder.config("spark.sql.adaptive.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", SHORT_RUN)
    builder = builder.config("spark.executor.extraJavaOptions", SHORT_RUN)
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark with two threads in one process, which tries each task three times."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    if shutil.which("java") is None:
        pytest.skip("no Java: scripts/install_java.sh")
    # Spark's part for Kafka has to be there from the start on.
    more = {"spark.jars": kafka_process.spark_jars()} if kafka_process.is_installed() else {}
    session = start_spark(f"local[2,{ATTEMPTS_MAX}]", **more)
    from dejaqueue.spark import register

    register(session)
    yield session
    session.stop()


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """A test that was broken off leaves no answer behind for the next call."""
    if call.excinfo is not None:
        forget_answers()


def forget_answers() -> None:
    """Have this thread call Spark by a new connection.

    A call that a timeout breaks off (or Ctrl-C) leaves its answer in the connection of this
    thread: every later call reads the answer of the one before, and all tests that follow fail.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway  # None before Spark has started
    if gateway is None:
        return
    connection = gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()
    session = SparkSession._instantiatedSession
    if session is not None:
        # A connection has a thread of its own in Java, which knows no session, and so none of the
        # data sources that were registered.
        with contextlib.suppress(Py4JError, OSError):  # Java may have ended
            kind = SparkSession._get_j_spark_session_class(session._jvm)
            kind.setActiveSession(session._jsparkSession)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker."""
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder / "data", folder / "log")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[dejaqueue.Client]:
    with dejaqueue.Client(broker.url) as connected:
        yield connected


_numbers = itertools.count()


@pytest.fixture
def make_topic(client: dejaqueue.Client) -> Callable[..., str]:
    """Makes a topic of two partitions that nobody else has."""

    def make(**settings: Any) -> str:
        name = f"t{next(_numbers)}"
        client.create_topic(name, **{"partitions": 2, **settings})
        return name

    return make


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """A folder in which tasks leave marks."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder
