"""`python -m tests.soak --minutes N`: what `make soak` runs.

A real broker under a mixed load (timeline, priority and fair topics, moves, cancels, lost clients,
cron entries), killed now and then. At the end everything is drained; the rules are judged, and
memory and disk must be as flat in the last third of the time as in the one before.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dejaqueue import Client, DejaQError
from dev.reaper import start_reaper
from tests.crash.broker_process import BrokerProcess
from tests.crash.load import Load
from tests.crash.stall import watched

MB = 1 << 20
SAMPLES_PER_MINUTE = 30
GROWTH_MAX = 1.15
"""Of the last third over the one before."""
SLACK_BYTES = 24 * MB


@dataclass
class Samples:
    """Memory and disk over time, in bytes; and how many cron messages came."""

    memory: list[int] = field(default_factory=list)
    disk: list[int] = field(default_factory=list)
    fired: int = 0

    def take(self, broker: BrokerProcess, data: Path) -> None:
        """One of each."""
        lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
        self.memory += [int(one.split()[1]) << 10 for one in lines if one.startswith("RssAnon")]
        used = 0
        for path in data.rglob("*"):
            try:
                used += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue  # it was deleted meanwhile
        self.disk.append(used)

    def faults(self) -> list[str]:
        """What still grows at the end."""
        found = []
        for name, values in (("memory", self.memory), ("disk", self.disk)):
            third = len(values) // 3
            before, last = values[third : 2 * third], values[2 * third :]
            if not before:
                continue
            was, now = statistics.median(before), statistics.median(last)
            print(f"{name}: {was / MB:.0f} MB in the second third, {now / MB:.0f} MB in the last")
            if now > was * GROWTH_MAX + SLACK_BYTES:
                found.append(f"{name} grows: {was / MB:.0f} MB, then {now / MB:.0f} MB")
        return found


def main() -> int:
    """Run; 1 if a rule was broken or something grows."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="dejaq-soak-") as place:
        faults = _soak(Path(place), options.minutes * 60)
    for fault in faults[:20]:
        print(fault)
    print("nothing broken, nothing grows" if not faults else f"{len(faults)} faults")
    return int(bool(faults))


def _soak(place: Path, seconds: float) -> list[str]:
    broker = BrokerProcess(
        place / "data",
        place / "broker.log",
        journal__segment_bytes=1 << 20,
        journal__snapshot_entries=2_000,
    )
    broker.start()
    loads = [
        Load(broker.url, "timeline", workers=1, pause_s=0.05),
        Load(broker.url, "priority", workers=1, pause_s=0.05, kind="priority"),
        Load(broker.url, "fair", workers=1, pause_s=0.05, kind="fair"),
    ]
    drained = False
    with contextlib.ExitStack() as watches:
        stalls = [
            watches.enter_context(watched(load.progress, broker, excused=partial(_is_over, load)))
            for load in loads
        ]
        try:
            _put_entries(broker)
            for load in loads:
                load.begin()
            samples = _run(broker, place / "data", seconds)
            fired = samples.fired + _drain_entries(broker)
            drained = True
        finally:
            try:
                for load in loads:
                    load.end(drained=drained)
            except AssertionError:
                print(broker.log_text()[-5_000:])
                raise
            finally:
                broker.kill()
    sent = sum(len(load.history.sent) for load in loads)
    acked = sum(len(load.history.acked_us) for load in loads)
    print(f"{sent:,} sent, {acked:,} acked, {fired:,} fired")
    faults = [fault for load in loads for fault in load.history.faults()]
    faults += [line for told in stalls for line in told]
    if not acked or not fired:
        faults.append("nothing happened")
    return [*faults, *samples.faults()]


def _is_over(load: Load) -> bool:
    return load.is_over


def _put_entries(broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        client.create_topic("cron", kind="cron")
        for number in range(20):
            client.cron("cron").put(f"e{number}", every_ms=1_000 * (1 + number % 3), misfire="all")


def _drain_entries(broker: BrokerProcess) -> int:
    """Ack what was fired; how many."""
    count = 0
    with Client(broker.url) as client:
        for batch in client.consume_batches("cron", idle_ms=1_500):
            count += batch.batch.num_rows
            batch.ack()
            if count > 1_000_000 or batch.batch.num_rows < 20:
                break
    return count


def _run(broker: BrokerProcess, data: Path, seconds: float) -> Samples:
    """Kill it now and then, and look at it in between."""
    samples = Samples()
    end = time.monotonic() + seconds
    kill_at = time.monotonic() + random.uniform(10, 60)
    pause = threading.Event()
    while time.monotonic() < end:
        pause.wait(60 / SAMPLES_PER_MINUTE)
        samples.take(broker, data)
        try:
            samples.fired += _drain_entries(broker)
        except DejaQError:
            continue
        if time.monotonic() > kill_at:
            broker.kill()
            broker.start()
            kill_at = time.monotonic() + random.uniform(10, 60)
    return samples


if __name__ == "__main__":
    sys.exit(main())
