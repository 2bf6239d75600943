"""Rot in a node of an embedded cluster, under sends: it is named, and rebuilt by its own broker.

`python -m tests.cluster.rot_embedded --first 1 --seeds 1` (a part of `make rot`).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dejaqueue import Client
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import DejaQError
from dev.reaper import start_reaper
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.rot import damage
from tests.cluster.sending import Sending, drained
from tests.patience import until

TOPIC, VICTIM = "rot", "b"
PAYLOAD_BYTES = 1_000
NAMED_MS_MAX = 60_000
SETTLE_US = 75_000_000
"""A server mends what is still in its log of the group, which it shortens every minute."""


@dataclass(frozen=True)
class Outcome:
    """What became of it.

    Attributes:
        named_ms, whole_ms: from the node's start to its being named, and to its being whole.
        lost: messages that were acknowledged and are not there, or not as they were sent.
    """

    named_ms: int
    whole_ms: int
    sent: int
    lost: int


def run(directory: Path, seed: int, megabytes: int) -> Outcome:
    """Write, kill a node, damage its files, start it again, wait until it is whole, read all."""
    cluster, clock, chance = EmbeddedCluster(directory), SteadyClock(), random.Random(seed)
    try:
        cluster.start("a", VICTIM, "c")
        with Client(cluster.url) as client:
            client.create_topic(TOPIC)
        filler = "".join(chance.choices("0123456789abcdef", k=PAYLOAD_BYTES))
        sending = Sending(cluster.url, [TOPIC], rows=1_000, filler=filler, pause_s=0.5)
        begun_us = clock.now_us()
        until(
            lambda: (
                len(sending.acknowledged) > megabytes * 1_000
                and clock.now_us() - begun_us > SETTLE_US
            ),
            "enough is sent",
            400,
        )
        cluster.brokers[VICTIM].kill()
        damage(directory / VICTIM / "jetstream", chance)
        began_us = clock.now_us()
        cluster.brokers[VICTIM].start()
        until(lambda: is_named(cluster), f"{VICTIM} is named", 120)
        named_ms = (clock.now_us() - began_us) // 1_000
        print(f"  after {named_ms} ms: {why_sick(cluster)}", flush=True)
        until(lambda: "it is whole again" in cluster.log(VICTIM), "it is rebuilt", 240)
        until(lambda: not why_sick(cluster), "it is whole", 120)
        whole_ms = (clock.now_us() - began_us) // 1_000
        sending.end()
        left = drained(cluster.url, [TOPIC])
        return Outcome(
            named_ms, whole_ms, len(sending.acknowledged), len(sending.acknowledged - left)
        )
    finally:
        cluster.stop()


def why_sick(cluster: EmbeddedCluster) -> str:
    """What a broker says of the node that was damaged; "" = that it is whole."""
    try:
        with Client(cluster.brokers["a"].url) as client:
            servers = client.cluster(servers=True)["servers"]
    except DejaQError as error:
        return str(error)
    [row] = [one for one in servers if one["server"] == VICTIM]
    return str(row["why"] or ("" if row["state"] == "whole" else row["state"]))


def is_named(cluster: EmbeddedCluster) -> bool:
    """True if it is said what is wrong, and not only that the server does not answer."""
    return f"server {VICTIM} is sick: dejaq-" in cluster.log("a") + cluster.log(VICTIM)


def main() -> int:
    """Run some seeds; 1 if anything was lost, or the node was named late."""
    start_reaper()
    options = argparse.ArgumentParser()
    options.add_argument("--first", type=int, default=1)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--megabytes", type=int, default=64)
    given = options.parse_args()
    bad = 0
    for seed in range(given.first, given.first + given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            one = run(Path(folder), seed, given.megabytes)
        good = one.lost == 0 and one.named_ms <= NAMED_MS_MAX
        bad += not good
        print(f"brokers, seed {seed}: {'good' if good else 'BAD'} {one}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
