"""How fast does the engine alone serve messages of one partition that are due at one instant?

Question: processor seconds to lease and ack them all, in dispatches as the broker makes them,
without journal, wire or threads. Beside it stands what a broker does with as many:
`python -m bench hot_instant --rows 2000000`.

    PYTHONPATH=src python bench/hot_engine.py [--messages 20000000]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from dejaqueue.engine.commands import Ack, Enqueue, Lease
from dejaqueue.engine.engine import Engine
from dejaqueue.limits import DISPATCH_ROWS_MAX

DUE_MS = 1_000_000
BATCH_ROWS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000_000)
    messages = parser.parse_args().messages
    engine, position = Engine(0), 0
    began = time.process_time()
    for first in range(0, messages, BATCH_ROWS):
        position += 1
        dues_ms = np.full(min(BATCH_ROWS, messages - first), DUE_MS, dtype=np.int64)
        engine.apply(Enqueue(0, position, dues_ms, ()))
    filled = time.process_time()
    left, longest = messages, 0.0
    while left:
        position += 1
        before = time.process_time()
        lease = Lease(0, position, DUE_MS, DISPATCH_ROWS_MAX, 1 << 50)
        leased = engine.apply(lease).leased
        assert leased is not None
        engine.apply(Ack(0, leased.lease_id))
        longest = max(longest, time.process_time() - before)
        left -= leased.sequences.size
    took = time.process_time() - filled
    print(f"{messages:,} messages of one instant, in seconds of processor time")
    print(f"{filled - began:.2f} s to store")
    print(f"{took:.2f} s to lease and ack, {messages / took / 1e6:.1f} M a second")
    print(f"{longest * 1e3:.1f} ms the longest dispatch")


if __name__ == "__main__":
    main()
