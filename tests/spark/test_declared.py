"""Covers: the tables of examples/52-declared-tables, as functions on the session of these tests,
and, where somebody asks for it, as Spark's own command makes them.

The command is a client of Spark Connect, and starts a JVM, a server and a Python for each step:
most of a minute. So `make spark-heavy` runs it, as it does test_connect.py, and each run of the
tests takes the definitions for what they are: functions that give tables.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as dataset
import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS
from tests.spark.connect_client import SETTINGS
from tests.spark.standalone import ENVIRONMENT
from tests.spark.test_connect import ANY_PORT, NEEDED, SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/52-declared-tables"
TOPIC, SUBSCRIPTION = "orders", "lake"
PAST_MS = 1_600_000_000_000
HOUR_MS = 3_600_000
ORDERS, ACKED = 60, 20
TABLES = {"orders_due", "orders_waiting", "orders_history", "orders_by_hour"}


@pytest.fixture
def orders(client: dejaqueue.Client) -> Iterator[None]:
    """Sixty orders of three hours that are due, of which twenty are done, and one of tomorrow."""
    client.create_topic(TOPIC, history=True)
    client.create_subscription(TOPIC, SUBSCRIPTION)
    rows = [
        {"payload": f"order {n}", "key": f"order-{n}", "due": PAST_MS + n % 3 * HOUR_MS + n}
        for n in range(ORDERS)
    ]
    client.send_batch(TOPIC, rows).raise_for_status()
    client.send(TOPIC, "later", due=4_000_000_000_000)
    for message in client.consume(TOPIC, max_messages=ACKED):
        message.ack(wait=True)
    yield
    client.delete_topic(TOPIC)


class Definitions:
    """What a pipeline's file declares: tables, each with the function that gives it.

    Attributes:
        flows: functions, by the table that they write to, as they came.
        outputs: the tables.
    """

    def __init__(self) -> None:
        self.flows: dict[str, Any] = {}
        self.outputs: dict[str, str] = {}

    def register_output(self, output: Any) -> None:
        self.outputs[output.name] = type(output).__name__

    def register_flow(self, flow: Any) -> None:
        self.flows[flow.target] = flow.func


def definitions(url: str, monkeypatch: pytest.MonkeyPatch) -> Definitions:
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    monkeypatch.setenv("DEJAQ_URL", url)
    found: Any = Definitions()
    with graph_element_registration_context(found):
        runpy.run_path(str(EXAMPLE / "transformations/orders.py"))
    assert isinstance(found, Definitions)
    return found


def kept(table: DataFrame, folder: Path) -> None:
    """Write a table, or what a stream has now, into files."""
    if not table.isStreaming:
        table.write.parquet(str(folder / "rows"))
        return
    writer = table.writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_SECONDS)


def test_the_tables_that_are_declared_have_what_the_topic_has(
    spark: SparkSession,
    broker: BrokerProcess,
    client: dejaqueue.Client,
    orders: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    declared = definitions(broker.url, monkeypatch)
    assert set(declared.outputs) == TABLES
    assert Counter(declared.outputs.values()) == {"StreamingTable": 1, "MaterializedView": 3}
    found = {}
    try:
        for name, function in declared.flows.items():
            kept(function(), tmp_path / name)
            spark.read.parquet(str(tmp_path / name / "rows")).createOrReplaceTempView(name)
            found[name] = spark.table(name).collect()
    finally:
        for name in declared.flows:
            spark.catalog.dropTempView(name)
    assert len({row["id"] for row in found["orders_due"]}) == len(found["orders_due"]) == ORDERS
    assert len(found["orders_waiting"]) == ORDERS - ACKED + 1
    changes = Counter(row["change"] for row in found["orders_history"])
    assert (changes["enqueued"], changes["acked"]) == (ORDERS + 1, ACKED)
    by_hour = sorted((row["hour"], row["orders"], row["done"]) for row in found["orders_by_hour"])
    assert [(orders, done) for _, orders, done in by_hour] == [(20, 20), (20, 0), (20, 0)]
    # Whoever consumes the topic lost nothing to the pipeline.
    assert client.stats(TOPIC).scheduled == ORDERS - ACKED + 1


@pytest.fixture
def needed() -> None:
    """Skip where nobody asked for it, or something is missing."""
    if os.environ.get("SPARK_HEAVY") != "1":
        pytest.skip("make spark-heavy")
    if shutil.which("java") is None:
        pytest.skip("no Java: scripts/install_java.sh")
    for name in ("pyspark", *NEEDED):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"the extra `connect` is not installed: no {name}")


def refresh(folder: Path, url: str) -> None:
    """What a user types in the example's folder."""
    import pyspark

    typed = re.search(
        r"^    (spark-pipelines .*)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE
    )
    assert typed is not None
    name, *words = typed[1].split()
    command = [str(Path(pyspark.__file__).parent / "bin" / name), *words]
    here = os.pathsep.join(path for path in sys.path if path)
    settings = [f"--conf={name}={value}" for name, value in SETTINGS.items()]
    done = subprocess.run(
        [*command, *settings],
        cwd=folder,
        env=os.environ | ENVIRONMENT | ANY_PORT | {"DEJAQ_URL": url, "PYTHONPATH": here},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX - 20,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    place = folder / "spark-warehouse" / table
    found: list[dict[str, Any]] = dataset.dataset(place, format="parquet").to_table().to_pylist()
    return found


@pytest.mark.slow
@pytest.mark.may_skip
def test_sparks_command_makes_the_tables__and_a_second_run_adds_what_is_new(
    needed: None,
    broker: BrokerProcess,
    client: dejaqueue.Client,
    orders: None,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    assert "file:///tmp/dejaq-orders" in text
    spec.write_text(text.replace("/tmp/dejaq-orders", str(tmp_path / "storage")), encoding="utf-8")
    refresh(folder, broker.url)
    assert len({row["id"] for row in rows(folder, "orders_due")}) == ORDERS
    assert len(rows(folder, "orders_waiting")) == ORDERS - ACKED + 1
    client.send(TOPIC, "one more", key="new", due=PAST_MS)
    refresh(folder, broker.url)
    assert Counter(row["key"] for row in rows(folder, "orders_due")).most_common(1)[0][1] == 1
    assert len(rows(folder, "orders_due")) == ORDERS + 1
    assert len(rows(folder, "orders_waiting")) == ORDERS - ACKED + 2
    by_hour = rows(folder, "orders_by_hour")
    assert sum(row["orders"] for row in by_hour) == ORDERS + 1, json.dumps(by_hour, default=str)
