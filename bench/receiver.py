"""A consumer in a program of its own, which notes how late every message came.

Room: bench. Arguments: URL, topic, how many, file. Prints `ready`, consumes and acks so many, then
writes an int64 array of shape (2, n): due times in ms and latenesses in us.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dejaqueue import Client
from dejaqueue.clock import SystemClock

SILENCE_MS = 30_000


def main() -> None:
    """Receive, as the arguments say."""
    url, topic, rows, path = sys.argv[1:]
    clock = SystemClock()
    received_us, dues = [], []
    left = int(rows)
    with Client(url) as client:
        print("ready", flush=True)
        for batch in client.consume_batches(topic, idle_ms=SILENCE_MS):
            received_us.append(clock.now_us())
            dues.append(batch.dues_ms)
            left -= len(dues[-1])
            batch.ack(wait=left == 0)
            if left == 0:
                break
    if left:
        sys.exit(f"{left} messages did not come")
    dues_ms = np.concatenate(dues)
    at_us = np.repeat(np.array(received_us, dtype=np.int64), [len(one) for one in dues])
    np.save(Path(path), np.stack([dues_ms, at_us - 1000 * dues_ms]))


if __name__ == "__main__":
    main()
