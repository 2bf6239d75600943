"""The program of a user of Spark Connect: `python -m tests.spark.connect_client ...`.

Run by test_connect.py in a process of its own, as one process has classic Spark or Connect.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.patience import PATIENCE_SECONDS

PAST_MS = 1_600_000_000_000
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.codegen.wholeStage": "false",
}


def main(url: str, source: str, target: str, folder: str, rows: str) -> None:
    """Fill a topic, read it, drain it into another one; say what was found."""
    from pyspark.sql import SparkSession

    from dejaqueue.spark import register

    builder: Any = SparkSession.builder
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.remote("local[2]").getOrCreate()
    assert "connect" in type(spark).__module__
    register(spark, push_filters=True)
    table = spark.range(0, int(rows), 1, 2).selectExpr("'p' || id payload", f"{PAST_MS}L + id due")
    options = {"url": url, "topic": source}
    table.write.format("dejaq").options(**options).mode("append").save()
    read = spark.read.format("dejaq").options(**options).load()
    said = {
        "rows": read.count(),
        "filtered": read.where(f"unix_millis(due) < {PAST_MS + 10}").count(),
    }
    try:
        table.selectExpr("payload colour").write.format("dejaq").options(**options).mode(
            "append"
        ).save()
    except Exception as wrong:  # noqa: BLE001 - which class it is, is Spark's
        said["wrong"] = "column colour: one of payload" in str(wrong)
    due: Any = spark.readStream.format("dejaq").options(**options).schema("payload binary").load()
    writer = due.writeStream.format("dejaq").options(**(options | {"topic": target}))
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_SECONDS)
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
