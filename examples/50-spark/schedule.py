"""A table of people becomes messages at nine in each one's own morning; then the topic is a table.

Run it against a broker: python examples/50-spark/schedule.py dejaq://localhost:7464
"""

import sys

from pyspark.sql import SparkSession

import dejaqueue
from dejaqueue.spark import register


def main(url: str, spark: SparkSession) -> None:
    """Write a campaign, look at it, and stop it for one of the cities."""
    register(spark)
    client = dejaqueue.Client(url)
    client.create_topic("campaign", partitions=2)
    people = [("ada", "Europe/Berlin"), ("bob", "Asia/Tokyo"), ("eve", "Asia/Tokyo")]
    audience = spark.createDataFrame(people, "name string, zone string")
    messages = audience.selectExpr(
        "'Good morning, ' || name as payload",
        "to_utc_timestamp(timestamp '2033-05-18 09:00:00', zone) as due",
        "'morning-' || name as key",
        "zone as `group`",
    )
    to_topic = messages.write.format("dejaq").option("url", url).option("topic", "campaign")
    to_topic.mode("append").save()
    to_topic.mode("append").save()  # once more: their keys are there

    scheduled = spark.read.format("dejaq").option("url", url).load("campaign")
    for row in scheduled.groupBy("group").count().orderBy("group").collect():
        print(f"{row['group']}: {row['count']}")

    print("cancelled:", client.cancel_where("campaign", group="Asia/Tokyo"))
    narrow = spark.read.format("dejaq").option("columns", "due, key").option("url", url)
    for row in narrow.load("campaign").selectExpr("key", "string(due) as due").collect():
        print(row["key"], row["due"])
    client.close()


if __name__ == "__main__":
    # The session's time zone is UTC, so that times without a zone mean that.
    session = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
    main(sys.argv[1] if len(sys.argv) > 1 else "dejaq://localhost:7464", session.getOrCreate())
