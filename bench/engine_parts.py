"""How fast is the engine alone, and how much memory does a message take in it?

Question: processor microseconds per command and million messages a second, by batch size, without
journal, wire or threads; resident bytes per scheduled message (`--messages`, default 5 million).

    PYTHONPATH=src python bench/engine_parts.py [--messages N] [--batch N ...] [--keys]
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dejaqueue.engine.commands import Ack, Cancel, Enqueue, Lease, Move
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.snapshot import plan_snapshot, restore
from dejaqueue.schema.keys import hash_keys

SPAN_MS = 1_000_000_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Stopwatch:
    """Processor times of single commands, printed as median, 99th percentile, maximum and mean."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def run(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.thread_time()
        effects = call(*arguments)
        self.times.setdefault(name, []).append(time.thread_time() - began)
        return effects

    def show(self, rows: int) -> None:
        for name, times in self.times.items():
            columns = np.array(times) * 1e6
            mean = columns.mean()
            tail = np.percentile(columns, 99)
            print(
                f"  {name:8} median {np.median(columns):8.1f} us  p99 {tail:9.1f}"
                f"  max {columns.max():9.1f}  mean {mean:8.1f}  {rows / mean:7.2f} M messages/s"
            )


def commands_at(engine: Engine, rows: int, rounds: int, position: int, watch: Stopwatch) -> int:
    """Time each command on batches of `rows`, in turn, so that the backlog keeps its size."""
    rng = np.random.default_rng(2)
    for _ in range(rounds):
        position += 1
        dues_ms = rng.integers(0, SPAN_MS, rows)
        watch.run("enqueue", engine.apply, Enqueue(0, position, dues_ms, ()))
        sequences = rng.integers(0, engine.next_sequence, rows)
        dues_ms = rng.integers(0, SPAN_MS, rows)
        watch.run("move", engine.apply, Move(0, sequences, dues_ms))
        position += 1
        # As a dispatcher does: up to when the next messages are due, which is "now".
        page, _ = engine.page(Selection(), after=(-1, -1), limit=rows, rows_max=1 << 40)
        until_ms = int(engine.dues(page[-1:])[0])
        lease = Lease(0, position, until_ms, rows, 1 << 50)
        leased = watch.run("lease", engine.apply, lease).leased
        watch.run("next due", engine.next_due_ms)
        half = leased.sequences.size // 2
        if half:
            named = leased.sequences[:half], leased.attempts[:half]
            watch.run("ack rows", engine.apply, Ack(0, -1, *named))
        watch.run("ack", engine.apply, Ack(0, leased.lease_id))
        watch.run("cancel", engine.apply, Cancel(0, sequences[: rows // 4 + 1]))
    return position


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 10, 100, 1_000, 8_192])
    parser.add_argument("--keys", action="store_true", help="give every message a key")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, numpy {np.__version__}, {arguments.messages:,} messages")
    rng = np.random.default_rng(1)
    engine, position, rows = Engine(0), 0, 1_000
    engine.apply(Enqueue(0, 1, np.zeros(1, dtype=np.int64), ()))
    before_bytes = resident_bytes()
    watch = Stopwatch()
    for first in range(0, arguments.messages, rows):
        position += 1
        dues_ms = rng.integers(0, SPAN_MS, rows)
        hashes = None
        if arguments.keys:
            texts = [b"key-%d" % number for number in range(first, first + rows)]
            offsets = np.cumsum([0, *map(len, texts)])
            hashes = hash_keys(offsets, np.frombuffer(b"".join(texts), dtype=np.uint8))
        command = Enqueue(0, position, dues_ms, (), hashes)
        watch.run("fill", engine.apply, command)
    took_bytes = resident_bytes() - before_bytes
    watch.show(rows)
    print(f"  {took_bytes / arguments.messages:.1f} bytes of resident memory per message")
    began = time.perf_counter()
    meta, files = plan_snapshot(engine)
    contents = {name: memoryview(content or b"") for name, content in files}
    print(f"  snapshot planned in {time.perf_counter() - began:.2f} s, {len(files)} files")
    began = time.perf_counter()
    restored = restore(meta, contents.__getitem__)
    print(f"  restored in {time.perf_counter() - began:.2f} s")
    assert restored.counts == engine.counts
    del restored, files, contents
    for batch in arguments.batch:
        rounds = max(50, min(1_000, 500_000 // batch))
        watch = Stopwatch()
        position = commands_at(engine, batch, rounds, position, watch)
        print(f"batches of {batch}")
        watch.show(batch)


if __name__ == "__main__":
    main()
