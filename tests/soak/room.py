"""How much disk a broker takes after a flood that was consumed, and after a start, unasked.

    python -m tests.soak.room --mib 800

A real `dejaq serve` with its usual settings: so much is sent and acked, the broker is stopped (or
killed), started again and left alone; what its directory takes is said meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import dejaqueue
from dev.reaper import start_reaper
from tests.crash.broker_process import BrokerProcess

ROWS = 1_000
ROW_BYTES = 4_096
TOPIC = "flood"
LEFT_BYTES_MAX = 4 << 20
"""An idle partition without messages: a segment of 1 MiB, and what lies beside."""


def taken_bytes(data: Path) -> int:
    """What the files of a directory take on the disk."""
    return sum(one.lstat().st_blocks * 512 for one in data.rglob("*") if one.is_file())


def flood(url: str, byte_count: int) -> int:
    """Send so much, then consume and ack all of it; how many messages that was."""
    count = 0
    with dejaqueue.Client(url) as client:
        client.create_topic(TOPIC)
        for _ in range(max(1, byte_count // (ROWS * ROW_BYTES))):
            count += len(client.send_batch(TOPIC, [os.urandom(ROW_BYTES)] * ROWS).ids)
        left = count
        with client.consume_batches(TOPIC, max_messages=count) as consumer:
            for batch in consumer:
                batch.ack().raise_for_status()
                left -= len(batch)
    assert left == 0, f"{left} messages were not delivered"
    return count


def run(place: Path, byte_count: int, seconds: float, *, kill: bool) -> int:
    """Flood, end, start, look; the bytes at the end."""
    data = place / "data"

    def say(when: str) -> int:
        found = taken_bytes(data)
        print(f"{when}: {found / 2**20:.1f} MiB", flush=True)
        return found

    broker = BrokerProcess(data, place / "log")
    broker.start()
    try:
        say(f"{flood(broker.url, byte_count):,} messages sent and acked")
        broker.kill() if kill else broker.stop()
        say("killed" if kill else "stopped")
        broker.start()
        began = time.monotonic()
        for part in (0.05, 0.25, 1.0):
            left_seconds = began + part * seconds - time.monotonic()
            time.sleep(max(0.0, left_seconds))  # tidy: allow sleep, because nobody may ask it
            left = say(f"{part * seconds:.0f} s after the start")
    finally:
        broker.stop()
    return left


def main() -> int:
    """1 if more is left than an empty partition takes."""
    start_reaper()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=800)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        left = run(Path(directory), options.mib << 20, options.seconds, kill=options.kill)
    return int(left > LEFT_BYTES_MAX)


if __name__ == "__main__":
    sys.exit(main())
