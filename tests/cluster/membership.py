"""Nodes join and leave again and again, under sends and with a broker killed in the middle.

`python -m tests.cluster.membership --rounds 4` (`make membership`). Each round a node joins, the
oldest one leaves, and meanwhile some broker is killed with SIGKILL and started again. At the end
everything that was acknowledged has to be there. Not covered: networks that part the servers.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from pathlib import Path

from dejaqueue import Client
from dejaqueue.clock import SteadyClock
from dev.reaper import start_reaper
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.sending import Sending, drained
from tests.patience import PATIENCE_SECONDS

TOPICS = [f"topic-{number}" for number in range(8)]
TRIES = 6


def run(directory: Path, rounds: int, chance: random.Random, *, kill: bool) -> tuple[int, int]:
    """Rounds; how many messages were acknowledged, and how many of them are lost."""
    cluster, clock = EmbeddedCluster(directory, cluster__lease_ms=2_000), SteadyClock()
    names = [chr(ord("a") + number) for number in range(3 + rounds)]
    try:
        cluster.start(*names[:3])
        with Client(cluster.url) as client:
            for topic in TOPICS:
                client.create_topic(topic, partitions=2)
        sending = Sending(cluster.url, TOPICS)
        for number in range(rounds):
            began_us = clock.now_us()
            cluster.start(names[3 + number])
            sending.follow(cluster.url)
            _remove(cluster, names[number], chance, kill=kill)
            seconds = (clock.now_us() - began_us) / 1e6
            there = len(sending.acknowledged)
            print(f"{names[number]} left for {names[3 + number]}: {seconds:.1f} s, {there} sent")
            sys.stdout.flush()
        sending.end()
        left = drained(cluster.url, TOPICS)
        return len(sending.acknowledged), len(sending.acknowledged - left)
    finally:
        cluster.stop()


def _remove(cluster: EmbeddedCluster, node: str, chance: random.Random, *, kill: bool) -> None:
    others = sorted(set(cluster.brokers) - {node})
    asked = chance.choice(others)
    victim = chance.choice(sorted(set(cluster.brokers) - {asked}))

    def strike() -> None:
        broker = cluster.brokers[victim]
        broker.kill()
        if victim != node:  # whoever was to leave anyway leaves dead
            broker.start()

    timer = threading.Timer(chance.uniform(0.5, 4.0), strike)
    if kill:
        timer.start()
    try:
        for _ in range(TRIES):
            done = cluster.command("remove", node, at=asked)
            if done.returncode == 0:
                break
            print(f"  again: {done.stderr.strip()}", flush=True)
            threading.Event().wait(5)
        assert done.returncode == 0, done.stderr
    finally:
        if kill:
            timer.join(PATIENCE_SECONDS)
    cluster.brokers.pop(node).kill()


def main() -> int:
    """Run; 1 if anything was lost."""
    start_reaper()
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--no-kill", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chance = random.Random(given.seed)
        sent, lost = run(Path(folder), given.rounds, chance, kill=not given.no_kill)
    print(f"{sent} acknowledged, {lost} lost")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
