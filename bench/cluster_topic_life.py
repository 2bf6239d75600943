"""Three brokers of one cluster in a program of their own, for the question `topics`.

Room: bench. `python -m bench.cluster_topic_life FOLDER COUNT THREADS JOURNAL COORDINATOR` makes
topics, each caller at a broker of its own choice, and prints one line of JSON.
See: topic_life.py, the same of a broker that is alone.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.topic_life import IDLE_SECONDS, make
from dejaqueue.broker.broker import Broker
from dejaqueue.cluster.node import Node
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings

NODES = ("a", "b", "c")
SETTLE_SECONDS = 5.0
"""What has to be dealt has been dealt then, and what was made is known to all."""


def main() -> None:
    """See the module."""
    folder, count, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    journal, coordinator = sys.argv[4:]
    facts = open_coordinator(coordinator)
    members = []
    for name in NODES:
        node = Node(name, open_coordinator(coordinator), ClusterSettings().lease_ms)
        settings = JournalSettings(url=journal, mirror=str(folder / name))
        broker = Broker(BrokerSettings(journal=settings), node=node)
        broker.start()
        node.start(broker, f"dejaq://{name}:1", f"http://{name}:2")
        members.append((broker, node))
    time.sleep(SETTLE_SECONDS)

    def fact_bytes() -> int:
        return sum(len(fact.key) + len(fact.value) for fact in facts.list(""))

    brokers = [broker for broker, _ in members]
    make(brokers, range(threads), threads)  # so that threads, connections and code are there
    before, began, processor = fact_bytes(), time.perf_counter(), time.process_time()
    make(brokers, range(threads, count), threads)
    found = {
        "cluster_made": (count - threads) / (time.perf_counter() - began),
        "cluster_processor": 1e6 * (time.process_time() - processor) / (count - threads),
        "cluster_facts": (fact_bytes() - before) / (count - threads),
    }
    time.sleep(SETTLE_SECONDS)
    processor = time.process_time()
    time.sleep(IDLE_SECONDS)
    found["cluster_idle"] = 100 * (time.process_time() - processor) / IDLE_SECONDS / len(NODES)
    for broker, node in members:
        node.stop()
        broker.stop()
    facts.close()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
