"""How fast is the engine alone, and how much memory does a message take in it?

Question: processor microseconds per command and million messages a second, by batch size, without journal,
wire or threads; resident bytes per scheduled message (`--messages`, default 5 million).

    PYTHONPATH=src python bench/engine_parts.py [--messages N] [--batch N ...] [--keys]
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import numpy as np

from dejaqueue.engine.commands import Ack, Cancel, Effects, Enqueue, Lease, Move
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.keys import hash_keys

SPAN_MS = 1_000_000_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Stopwatch:
    """Processor times of single commands, printed as median, 99th percentile, maximum and mean."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def run(self, name: str, command: Callable[[], Effects]) -> Effects:
        began = time.thread_time()
        effects = command()
        self.times.setdefault(name, []).append(time.thread_time() - began)
        return effects

    def show(self, rows: int) -> None:
        for name, times in self.times.items():
            columns = np.array(times) * 1e6
            mean = columns.mean()
            print(
                f"  {name:8} median {np.median(columns):8.1f} us  p99 {np.percentile(columns, 99):9.1f}"
                f"  max {columns.max():9.1f}  mean {mean:8.1f}  {rows / mean:7.2f} M messages/s"
            )


def commands_at(engine: Engine, rows: int, rounds: int, position: int) -> int:
    """Time each command on batches of `rows`, in turn, so that the backlog keeps its size."""
    rng = np.random.default_rng(2)
    watch = Stopwatch()
    for _ in range(rounds):
        dues_ms = rng.integers(0, SPAN_MS, rows)
        position += 1
        watch.run("enqueue", lambda: engine.apply(Enqueue(0, position, dues_ms, ())))
        sequences = rng.integers(0, engine.next_sequence, rows)
        watch.run("move", lambda: engine.apply(Move(0, sequences, dues_ms)))
        position += 1
        effects = watch.run(
            "lease", lambda: engine.apply(Lease(0, position, SPAN_MS, rows, 1 << 50))
        )
        leased = effects.leased
        assert leased is not None
        watch.run("next due", lambda: engine.next_due_ms())  # type: ignore[arg-type,return-value]
        half = leased.sequences.size // 2
        named = leased.sequences[:half], leased.attempts[:half]
        if half:
            watch.run("ack rows", lambda: engine.apply(Ack(0, -1, *named)))
        watch.run("ack", lambda: engine.apply(Ack(0, leased.lease_id)))
        watch.run("cancel", lambda: engine.apply(Cancel(0, sequences[: rows // 4 + 1])))
    print(f"batches of {rows}")
    watch.show(rows)
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
        watch.run("fill", lambda: engine.apply(command))
    took_bytes = resident_bytes() - before_bytes
    watch.show(rows)
    print(f"  {took_bytes / arguments.messages:.1f} bytes of resident memory per message")
    for batch in arguments.batch:
        rounds = max(50, min(1_000, 500_000 // batch))
        position = commands_at(engine, batch, rounds, position)


if __name__ == "__main__":
    main()
