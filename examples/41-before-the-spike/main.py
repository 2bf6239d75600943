"""Before the spike comes: what falls due soon, how many consumers that needs, how late it was."""

import math

import dejaqueue

SECONDS_PER_MESSAGE = 0.02  # what one consumer needs for one of them

with dejaqueue.open("memory:") as queue:
    queue.create_topic("reminders")
    queue.send_batch("reminders", ["now"] * 20)
    queue.send_batch("reminders", [{"payload": b"soon", "delay": 45}] * 30_000)
    queue.send_batch("reminders", [{"payload": b"later", "delay": 400}] * 100_000)

    figures = queue.stats("reminders")
    print("due now:", figures.ready)
    for within, seconds in (("1s", 1), ("10s", 10), ("1m", 60), ("10m", 600), ("1h", 3_600)):
        coming = figures.ready + figures[f"due_within_{within}"]
        consumers = max(1, math.ceil(coming * SECONDS_PER_MESSAGE / seconds))
        print(f"within {within}: {coming} messages, {consumers} consumers do them in time")

    # What was due is worked off; the client knows how late each was, and tells the broker.
    consumer = queue.consume("reminders", max_messages=20)
    for message in consumer:
        message.ack()
    lateness = consumer.lateness()
    print("handed over:", lateness.count, "of them early:", int((lateness.min_us or 0) < 0))
