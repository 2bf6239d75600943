"""How fast are the parts of the segment journal: append and sync, gather, free, open?

    python bench/journal_parts.py [--mib 48] [--directory DIR]

Prints question, case, value and unit, one per line. Small by default (a few seconds).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dejaqueue.journal.interface import TEXT_COLUMNS, Entry, EntryKind, Journal, TextColumn
from dejaqueue.journal.segments.store import SegmentStore

PAYLOAD_BYTES = 100
Locators = np.ndarray


def make_entry(rows: int) -> Entry:
    """A batch as an enqueue writes it: dues, ids, payloads of 100 B."""
    offsets = np.arange(rows + 1, dtype=np.int32) * PAYLOAD_BYTES
    payload = np.random.default_rng(1).bytes(rows * PAYLOAD_BYTES)
    dues_ms = np.arange(rows, dtype=np.int64)
    texts = {"payload": TextColumn(offsets, payload)}
    return Entry(EntryKind.ENQUEUE, 0, rows=rows, ints=(dues_ms,), texts=texts)


def report(question: str, case: str, value: float, unit: str) -> None:
    print(f"{question:<10} {case:<44} {value:>14,.1f} {unit}", flush=True)


def measure(call: Callable[[], object], count: int) -> float:
    """Median time of a call, µs."""
    spans = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        spans.append(time.perf_counter() - start)
    return statistics.median(spans) * 1e6


def bench_append(store: SegmentStore, mib: int) -> None:
    for rows in (1, 10, 100, 1_000, 10_000):
        journal = store.open(f"append-{rows}", 0)
        entry = make_entry(rows)
        count = max(20, min(1_000, (mib << 20) // (rows * (PAYLOAD_BYTES + 12))))
        spans = np.zeros(count)
        for place in range(count):
            start = time.perf_counter()
            journal.append([entry], journal.tail, 1)
            spans[place] = time.perf_counter() - start
        case = f"batches of {rows}, one sync each"
        report("append", case, rows * count / spans.sum(), "rows/s")
        report("append", f"{case}, p50", np.quantile(spans, 0.5) * 1e6, "µs")
        report("append", f"{case}, p99", np.quantile(spans, 0.99) * 1e6, "µs")
        journal.close()


def bench_group(store: SegmentStore) -> None:
    journal = store.open("group", 0)
    entries = [make_entry(100)] * 32
    median = measure(lambda: journal.append(entries, journal.tail, 1), 100)
    report("append", "32 batches of 100 in one append", 3_200 / median * 1e6, "rows/s")
    journal.close()


def fill(journal: Journal, entries: int, rows: int) -> Locators:
    """Append, and return every locator."""
    entry = make_entry(rows)
    first = journal.tail + 1
    for start in range(0, entries, 50):
        journal.append([entry] * min(50, entries - start), journal.tail, 1)
    positions = np.arange(first, first + entries, dtype=np.int64)
    return (positions[:, None] << 20 | np.arange(rows)).ravel()


def bench_read(store: SegmentStore, mib: int) -> None:
    journal = store.open("read", 0)
    random = np.random.default_rng(2)
    all_rows = fill(journal, (mib << 20) // (20 * 112), 20)
    for rows in (1, 100, 1_000, 8_192):
        chosen = random.choice(all_rows, (64, rows))
        for columns, name in ((("payload",), "payload"), (TEXT_COLUMNS, "5 columns, 4 absent")):
            turn = itertools.cycle(chosen)

            def read(turn: Any = turn, columns: tuple[str, ...] = columns) -> None:
                journal.read(next(turn), columns)

            median = measure(read, 300)
            report("read", f"{rows} random rows, {name}", median, "µs")
            report("read", f"{rows} random rows, {name}", rows / median * 1e6, "rows/s")
    journal.adopt(iter([all_rows]))
    parts = np.array_split(all_rows, len(all_rows) // 1_000)
    median = measure(lambda: journal.free(parts.pop()), len(parts) - 1)
    report("free", "1,000 rows", median, "µs")
    tail = journal.tail
    journal.close()
    start = time.perf_counter()
    journal = store.open("read", 0)
    report("open", f"{tail} entries, no snapshot", (time.perf_counter() - start) * 1e3, "ms")
    start = time.perf_counter()
    count = sum(1 for _ in journal.scan(0))
    report("scan", "entries", count / (time.perf_counter() - start), "entries/s")
    journal.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mib", type=int, default=48, help="bytes written per case, MiB")
    options.add_argument("--directory", type=Path, help="where to write; default: a new temporary")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as directory:
        store = SegmentStore(Path(directory) / "store")
        bench_append(store, chosen.mib)
        bench_group(store)
        bench_read(store, chosen.mib)
        store.close()


if __name__ == "__main__":
    main()
