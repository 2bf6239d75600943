"""What 10,000 partitions cost three brokers with JetStream beside each, for the question `topics`.

Room: bench. Three brokers as their users run them; ten topics of a thousand partitions are made,
filled with four messages a partition, and left alone.

- `jetstream_made`: seconds until all are made and messages are durable in each.
- `jetstream_memory`, `jetstream_files`: resident MB and descriptors of the largest nats-server.
- `jetstream_idle`: percent of a core of the busiest broker, its server not included, when nobody
  does anything.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.load import far_load
from bench.machine import memory_bytes
from bench.systems.cluster import NODES, ClusterSystem
from bench.systems.system import Plan

TOPICS, PARTITIONS, QUICK_PARTITIONS, ROWS = 10, 1_000, 10, 4
MADE_SECONDS_MAX = 120.0
SETTLE_SECONDS, IDLE_SECONDS, QUICK_SECONDS = 10.0, 10.0, 1.0
MB = 1_000_000


def partition_figures(plan: Plan) -> dict[str, float]:
    """The figures, by case."""
    system = ClusterSystem()
    system.start(plan.folder)
    partitions = QUICK_PARTITIONS if plan.quick else PARTITIONS
    wait = QUICK_SECONDS if plan.quick else IDLE_SECONDS
    try:
        began = time.perf_counter()
        for number in range(TOPICS):
            topic = f"many-{number}"
            system.client.create_topic(topic, partitions=partitions)
            load = far_load(ROWS * partitions, system.clock.now_ms(), number)
            system.fill(topic, load, MADE_SECONDS_MAX, ROWS * partitions)
        made = time.perf_counter() - began
        time.sleep(QUICK_SECONDS if plan.quick else SETTLE_SECONDS)
        brokers = [system.broker_pid(node) for node in NODES]
        before = [_seconds(pid) for pid in brokers]
        time.sleep(wait)
        idle = max(_seconds(pid) - was for pid, was in zip(brokers, before, strict=True))
        servers = [system.server_pid(node) for node in NODES]
        return {
            "jetstream_made": made,
            "jetstream_memory": max(memory_bytes(pid)["rss"] for pid in servers) / MB,
            "jetstream_files": max(len(os.listdir(f"/proc/{pid}/fd")) for pid in servers),
            "jetstream_idle": 100 * idle / wait,
        }
    finally:
        system.stop()


def _seconds(pid: int) -> float:
    """Processor time of one process, without what it has started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
