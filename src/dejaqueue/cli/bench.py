"""`dejaq bench`: a quick look at how fast this broker on this machine is.

Room: cli. Through the public client alone; comparing DejaQ with others is the directory `bench/`.
Holds: works on a topic of its own, which is deleted at the end.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_json

if TYPE_CHECKING:
    import pyarrow as pa

    from dejaqueue import Client

PAYLOAD_BYTES = 100
BATCH_ROWS = 1_000
BATCHES_IN_FLIGHT = 16
FAR_MS = 3_600_000
LATENESS_RATE = 2_000
"""Messages a second while lateness is measured: a load that no machine minds."""
LATENESS_LEAD_MS = 1_000


@click.command(epilog="Example: `dejaq bench --messages 1000000`")
@click.option("--messages", type=click.IntRange(BATCH_ROWS), default=200_000, show_default=True)
@click.option("--lateness-seconds", type=click.IntRange(1, 600), default=5, show_default=True)
@json_option("Print JSON lines: name, value, unit.")
@url_option
def bench(*, messages: int, lateness_seconds: int, as_json: bool, url: str) -> None:
    """Measure enqueue, lease and ack, and lateness, one client against the broker at --url."""
    with connect(url) as client:
        topic = f"dejaq-bench-{time.perf_counter_ns():x}"
        client.create_topic(topic)
        try:
            figures = {
                "enqueue": (_enqueue(client, topic, messages), "messages/s"),
                "lease_ack": (_lease_ack(client, topic, messages), "messages/s"),
            }
            p50, p99, most = _lateness(client, topic, lateness_seconds)
            figures["lateness_p50"] = (p50, "ms")
            figures["lateness_p99"] = (p99, "ms")
            figures["lateness_max"] = (most, "ms")
        finally:
            client.delete_topic(topic)
    for name, (value, unit) in figures.items():
        if as_json:
            print_json({"name": name, "value": value, "unit": unit})
        else:
            shown = f"{value:,.0f}" if value >= 1_000 else f"{value:.3f}"
            click.echo(f"{name} {shown} {unit}")


def _batches(dues_ms: object) -> list[pa.Table]:
    """Tables of BATCH_ROWS messages of PAYLOAD_BYTES, with these due times."""
    import numpy as np
    import pyarrow as pa

    dues = np.asarray(dues_ms, dtype=np.int64)
    payloads = pa.array([b"x" * PAYLOAD_BYTES] * min(BATCH_ROWS, len(dues)), pa.binary())
    return [
        pa.table({"payload": payloads[: len(part)], "due": part})
        for part in (dues[i : i + BATCH_ROWS] for i in range(0, len(dues), BATCH_ROWS))
    ]


def _enqueue(client: Client, topic: str, messages: int) -> float:
    """Messages a second that are made durable, random due times in the last hour."""
    import numpy as np

    from dejaqueue.clock import SystemClock

    now_ms = SystemClock().now_ms()
    # Due already, so that the next question can take them all.
    batches = _batches(np.random.default_rng(7).integers(now_ms - FAR_MS, now_ms, messages))
    began = time.perf_counter()
    with client.producer(topic) as producer:
        waiting = deque(producer.send_batch(batch) for batch in batches[:BATCHES_IN_FLIGHT])
        for batch in batches[BATCHES_IN_FLIGHT:]:
            waiting.popleft().result()
            waiting.append(producer.send_batch(batch))
        for future in waiting:
            future.result()
    return messages / (time.perf_counter() - began)


def _lease_ack(client: Client, topic: str, messages: int) -> float:
    """Messages a second that are leased, delivered and acked."""
    began = time.perf_counter()
    left = messages
    with client.consume_batches(topic, max_messages=messages) as batches:
        for batch in batches:
            left -= len(batch)
            batch.ack(wait=left <= 0)
    return messages / (time.perf_counter() - began)


def _lateness(client: Client, topic: str, seconds: int) -> tuple[float, float, float]:
    """p50, p99 and the worst in milliseconds, from the due time to the application."""
    import numpy as np

    from dejaqueue.clock import SystemClock

    clock = SystemClock()
    count = seconds * LATENESS_RATE
    start_ms = clock.now_ms() + LATENESS_LEAD_MS
    for table in _batches(start_ms + np.arange(count) * 1_000 // LATENESS_RATE):
        client.send_batch(topic, table)
    latenesses = []
    with client.consume_batches(topic, max_messages=count) as batches:
        for batch in batches:
            latenesses.append(clock.now_us() - batch.dues_ms * 1_000)
            batch.ack(wait=False)
    p50, p99, most = np.quantile(np.concatenate(latenesses), [0.5, 0.99, 1.0]) / 1_000
    return float(p50), float(p99), float(most)
