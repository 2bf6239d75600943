"""Tables of the topic `orders`, declared: Spark says in which order they are made, and keeps them
up to date.

    DEJAQ_URL=dejaq://broker:7464 spark-pipelines run --spec spark-pipeline.yml
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

URL = os.environ.get("DEJAQ_URL", "dejaq://localhost:7464")
TOPIC = "orders"
SUBSCRIPTION = "lake"

spark = SparkSession.active()


@dp.table(comment="Every order, once, as it became due. Others consume the topic as before.")
def orders_due() -> DataFrame:
    reader = spark.readStream.format("dejaq").option("url", URL)
    reader = reader.option("subscription", SUBSCRIPTION)
    return reader.schema("id bigint, key string, due timestamp, payload string").load(TOPIC)


@dp.materialized_view(comment="What the topic still has: scheduled, or at a consumer.")
def orders_waiting() -> DataFrame:
    reader = spark.read.format("dejaq").option("url", URL)
    return reader.option("columns", "id,key,due,attempts,state").load(TOPIC)


@dp.materialized_view(comment="What happened to each order, and when.")
def orders_history() -> DataFrame:
    return spark.read.format("dejaq").option("url", URL).option("view", "history").load(TOPIC)


@dp.materialized_view(comment="Orders by the hour in which they were due, and how many are done.")
def orders_by_hour() -> DataFrame:
    done = spark.read.table("orders_history").where("change = 'acked'").select("id").distinct()
    due = spark.read.table("orders_due").selectExpr("id", "date_trunc('hour', due) as hour")
    joined = due.join(done.selectExpr("id", "true as is_done"), "id", "left")
    return joined.groupBy("hour").agg(
        functions.count("*").alias("orders"), functions.count("is_done").alias("done")
    )
