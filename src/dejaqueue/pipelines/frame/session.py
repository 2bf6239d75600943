"""Where a pipeline's Spark session comes from.

    a session of this program      is used, and left running
    spark-submit started this      its master and its settings hold
    --master sc://…                Spark Connect
    --master spark://…, yarn …     a cluster
    nothing said                   local[*], on this machine and loopback alone

Room: pipelines. pyspark is imported in functions only.
Holds: a local session binds nothing but 127.0.0.1 and serves no web page; whoever lacks pyspark or
Java is told what to install, in one sentence.
See: docs/guides/pipelines.md; scripts/install_java.sh.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.frame.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
JAVA_MIN = 17
LOOPBACK = "127.0.0.1"
LOCAL_SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
}
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the programs it starts."""
_TIME_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True, slots=True)
class Session:
    """How to make a session.

    Attributes:
        name: shown by Spark.
        master: where Spark runs; "" = as spark-submit says, or local[*].
        settings: of Spark, by name; they win over ours.
        is_loud: True: Spark's own log is shown from warnings on.
    """

    name: str = "dejaq"
    master: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    is_loud: bool = False


@contextmanager
def spark_session(
    session: Session, given: SparkSession | None, progress: Progress
) -> Iterator[SparkSession]:
    """A session for the length of a run; stopped at its end if it was made for it.

    Raises:
        BadRequest: pyspark or Java is missing, or Spark cannot start with these settings.
    """
    _require_pyspark()
    from dejaqueue.spark import register

    from pyspark.sql import SparkSession  # isort: skip

    found = given or SparkSession.getActiveSession()
    if found is None:
        with progress.step(f"starting Spark on {session.master or LOCAL}"):
            spark = _start(session)
    else:
        spark = found
    zone_before = str(spark.conf.get(_TIME_ZONE))
    try:
        spark.conf.set(_TIME_ZONE, "UTC")
        register(spark)
        yield spark
    finally:
        if found is None:
            spark.stop()
        else:
            spark.conf.set(_TIME_ZONE, zone_before)


def parse_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """Settings of Spark from `name=value` each.

    Raises:
        BadRequest: one has no `=`.
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadRequest("--conf", "NAME=VALUE", text)
        settings[name.strip()] = value.strip()
    return settings


def _start(session: Session) -> SparkSession:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.appName(session.name)
    if session.master.startswith("sc://"):
        started: SparkSession = builder.remote(session.master).getOrCreate()
        return started
    _require_java()
    is_submitted = _SUBMITTED in os.environ
    master = session.master or ("" if is_submitted else LOCAL)
    settings: dict[str, str] = {}
    if master:
        builder = builder.master(master)
    if master.startswith("local") and not is_submitted:
        settings |= LOCAL_SETTINGS
    settings |= session.settings
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(is_local=master.startswith("local")):
        if settings.get("spark.driver.host") == LOOPBACK and not session.is_loud:
            _start_java(settings)
        started = builder.getOrCreate()
    started.sparkContext.setLogLevel("WARN" if session.is_loud else "OFF")
    return started


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Spark's Java without what it says before anybody could tell it not to.

    Raises:
        BadRequest: it did not start; with the last that it said.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with tempfile.TemporaryFile() as said:
        try:
            gateway = launch_gateway(conf, {"stderr": said})  # type: ignore[no-untyped-call]
        except (PySparkException, OSError) as wrong:
            said.seek(0)
            last = said.read().decode("utf-8", "replace").strip()[-500:]
            raise BadRequest("Spark", "able to start; --debug shows more", last or str(wrong))
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _environment(*, is_local: bool) -> Iterator[None]:
    """For the start of Spark: on this machine its Python is this one, with the code that runs."""
    if not is_local:
        yield
        return
    source = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    ours = {
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", LOOPBACK),
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                del os.environ[name]
            else:
                os.environ[name] = old


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise BadRequest("pyspark", "installed: pip install 'dejaqueue[spark]'", "no such package")


def _require_java() -> None:
    """Raise BadRequest if there is no Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None:
        raise BadRequest("Java", _JAVA_WORDS, f"none in {'JAVA_HOME' if home else 'PATH'}")
    said = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if version is None or int(version[1]) < JAVA_MIN:
        first = (said.stderr or said.stdout).partition("\n")[0]
        raise BadRequest("Java", _JAVA_WORDS, version[1] if version else first)


_JAVA_WORDS = (
    f"version {JAVA_MIN} or newer, which Spark runs on: apt-get install openjdk-17-jre-headless, "
    "or any other with its bin folder in PATH or its folder in JAVA_HOME"
)
