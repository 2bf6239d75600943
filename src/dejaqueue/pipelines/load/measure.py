"""How fast one partition of this broker is: a second of work on a topic of its own.

Room: pipelines. Through the public client alone.
Holds: the topic is deleted at the end, whatever happens.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from dejaqueue.client import Client

MESSAGES = 100_000
BATCH_ROWS = 1_000
PAYLOAD_BYTES = 100


def measure_partition(client: Client) -> float:
    """Messages a second that are leased, delivered and acked through one partition."""
    topic = f"dejaq-forecast-{uuid.uuid4().hex[:12]}"
    client.create_topic(topic, partitions=1)
    try:
        batch = pa.table({"payload": pa.array([b"x" * PAYLOAD_BYTES] * BATCH_ROWS, pa.binary())})
        with client.producer(topic) as producer:
            sent = [producer.send_batch(batch) for _ in range(MESSAGES // BATCH_ROWS)]
            for answer in sent:
                answer.result()
        began = time.perf_counter()
        left = MESSAGES
        with client.consume_batches(topic, max_messages=MESSAGES) as batches:
            for found in batches:
                left -= len(found)
                found.ack(wait=left <= 0)
        return MESSAGES / (time.perf_counter() - began)
    finally:
        client.delete_topic(topic)
