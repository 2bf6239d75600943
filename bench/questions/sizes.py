"""How many bytes a second can be sent in payloads of 16 KiB to 1 MiB, and what does a byte cost?

- `enqueue_16k`, `enqueue_64k`, `enqueue_256k`, `enqueue_1m`: one producer, batches of 4 MiB of
  random bytes, due in an hour, each durable before it is answered. The payloads stay in the
  journal (`payload_store_bytes` is as by default).
- `..._us`: processor time of a mebibyte, of broker and client together; `copy_us` is what the
  kernel takes to write one to a file of the same folder and sync it.
- `disk`: what that one process writes there, 4 MiB at a time, each synced.

What counts is the median of the rounds; a ratio is the median of the rounds' ratios to `disk`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bench.load import HOUR_MS
from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.dejaq import SCHEMA, DejaqSystem
from bench.systems.system import Plan, Stopwatch, with_cost

QUESTION = "sizes"
MIB = 1 << 20
BATCH_BYTES = 4 * MIB
BYTES_MAX, QUICK_BYTES_MAX = 512 * MIB, 16 * MIB
SIZES = {"16k": 16 << 10, "64k": 64 << 10, "256k": 256 << 10, "1m": MIB}
DISK = "disk"

Report = Callable[[str], None]


class Moved(NamedTuple):
    """So many bytes a second, at so many microseconds of processor time a mebibyte."""

    bytes_per_second: float
    mib_us: float


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    found: dict[str, list[Moved]] = {}
    system = DejaqSystem()
    system.start(plan.folder)
    try:
        for number in range(plan.rounds + 1):
            moved = {DISK: _disk(plan)}
            for name, size in SIZES.items():
                moved[f"enqueue_{name}"] = _enqueue(system, size, plan)
            if not number:
                continue  # what is imported or opened once is not measured
            for case, one in moved.items():
                found.setdefault(case, []).append(one)
                report(f"round {number}: {case}: {one.bytes_per_second / 1e9:.2f} GB/s")
    finally:
        system.stop()
    return _outcome(found)


def _enqueue(system: DejaqSystem, size: int, plan: Plan) -> Moved:
    rows = BATCH_BYTES // size
    content = pa.py_buffer(np.random.default_rng(size).bytes(BATCH_BYTES))
    ends = np.arange(0, BATCH_BYTES + 1, size, dtype=np.int32)
    payloads = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), content])
    dues = pa.array(np.full(rows, system.clock.now_ms() + HOUR_MS))
    batch = pa.RecordBatch.from_arrays([payloads, dues], schema=SCHEMA)
    count = (QUICK_BYTES_MAX if plan.quick else BYTES_MAX) // BATCH_BYTES
    parts = [slice(0, rows)] * count
    topic = system.new_topic()
    measured, row_us = with_cost(
        system, lambda: system.send(topic, parts, lambda _: batch, plan.seconds)
    )
    system.client.delete_topic(topic)
    return Moved(measured.per_second * size, row_us * MIB / size)


def _disk(plan: Plan) -> Moved:
    content = np.random.default_rng(0).bytes(BATCH_BYTES)
    count = (QUICK_BYTES_MAX if plan.quick else BYTES_MAX) // BATCH_BYTES
    path = plan.folder / "disk"
    before = os.times()
    watch = Stopwatch(plan.seconds)
    written = 0
    with path.open("wb", buffering=0) as file:
        while written < count and not watch.is_over():
            file.write(content)
            os.fdatasync(file.fileno())
            written += 1
    seconds = watch.seconds()
    after = os.times()
    path.unlink()
    spent = after.user + after.system - before.user - before.system
    byte_count = written * BATCH_BYTES
    return Moved(byte_count / seconds, spent * 1e6 * MIB / byte_count)


def _outcome(found: dict[str, list[Moved]]) -> Outcome:
    """
    >>> moved = {"disk": [Moved(2e9, 100.0)], "enqueue_1m": [Moved(1e9, 500.0)]}
    >>> for row in _outcome(moved).rows:
    ...     print(row.case, row.value, row.unit, row.ratio)
    disk 2.0 GB/s None
    copy_us 100.0 us None
    enqueue_1m 1.0 GB/s 0.5
    enqueue_1m_us 500.0 us None
    """
    outcome = Outcome()
    for case, moved in found.items():
        rates = [one.bytes_per_second / 1e9 for one in moved]
        costs = [one.mib_us for one in moved]
        pairs = zip(moved, found[DISK], strict=True)
        ratio = round(median(a.bytes_per_second / b.bytes_per_second for a, b in pairs), 3)
        to = (None, None) if case == DISK else (ratio, DISK)
        cost_case = "copy_us" if case == DISK else f"{case}_us"
        outcome.rows.append(Row(QUESTION, "dejaq", case, round(median(rates), 3), "GB/s", *to))
        outcome.rows.append(Row(QUESTION, "dejaq", cost_case, round(median(costs), 1), "us"))
        outcome.spreads[f"dejaq/{case}"] = spread(rates)
        outcome.spreads[f"dejaq/{cost_case}"] = spread(costs)
    return outcome
