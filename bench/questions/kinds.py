"""What do keys, priorities, groups and a history cost?

- `enqueue`, `enqueue_keys`, `enqueue_tags`: one producer, batches of 1,000, 100 random bytes each,
  due ahead; plain, with a key of 16 bytes in every message, all different, and with two tags of a
  hundred in each. `..._written`: bytes that the broker wrote to disks meanwhile, a message.
- `lease_ack`, `lease_ack_priority`, `lease_ack_fair`, `lease_ack_nested`: one consumer leases and
  acks 1,000 at a time until all that is due is gone: of a timeline, of a priority topic with random
  priorities, of a fair topic with 1,000 groups, and with 1,000 groups within 100.
- `enqueue_history`, `lease_ack_history`: as without, on a topic whose history is recorded.

All on one broker, in turns, each with a topic of its own. What counts is the median of the rounds;
a ratio is the median of the rounds' ratios to the plain case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load import Load, far_load, past_load
from bench.machine import written_bytes
from bench.percentiles import spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.dejaq import DejaqSystem, record_batch
from bench.systems.system import Measured, Plan, batches, with_cost

QUESTION = "kinds"
UNIT = "messages/s"
KEY_BYTES = 16
GROUPS = 1_000
TENANTS = 100
TAGS = 100
PLAIN = {
    "enqueue_keys": "enqueue",
    "enqueue_tags": "enqueue",
    "enqueue_keys_written": "enqueue_written",
    "lease_ack_priority": "lease_ack",
    "lease_ack_fair": "lease_ack",
    "lease_ack_nested": "lease_ack",
    "enqueue_history": "enqueue",
    "lease_ack_history": "lease_ack",
}
"""What a case is compared with."""
WRITTEN = ("enqueue", "enqueue_keys")

Report = Callable[[str], None]
Columns = Callable[[slice], dict[str, pa.Array]]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    found, left_out = available(("dejaq",))
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    written: dict[str, list[float]] = {}
    if not found:
        return Outcome(left_out=left_out)
    system = DejaqSystem()
    system.start(plan.folder)
    try:
        system.warm(plan)
        for number in range(1, plan.rounds + 1):
            for case, run in cases(system).items():
                before = written_bytes(system.pid())
                measured, processor_us = with_cost(system, partial(run, plan, number))
                if case in WRITTEN:
                    each = (written_bytes(system.pid()) - before) / measured.rows
                    written.setdefault(f"{case}_written", []).append(each)
                rates.setdefault(case, []).append(measured.per_second)
                costs.setdefault(case, []).append(processor_us)
                report(f"round {number}: {case}: {measured.per_second:,.0f} {UNIT}")
    finally:
        system.stop()
    outcome = Outcome(rows=rows_of(rates) + rows_of(written, "bytes"), left_out=left_out)
    outcome.spreads = {
        f"dejaq/{case}": spread(values) | {"processor_us": costs[case]}
        for case, values in rates.items()
    } | {f"dejaq/{case}": spread(values) for case, values in written.items()}
    return outcome


def rows_of(rates: dict[str, list[float]], unit: str = UNIT) -> list[Row]:
    """The rows of the figures of each round, by case."""
    rows = []
    for case, values in rates.items():
        plain = PLAIN.get(case)
        ratio = None
        if plain is not None:
            ratios = [a / b for a, b in zip(values, rates[plain], strict=True)]
            ratio = round(median(ratios), 3)
        rows.append(Row(QUESTION, "dejaq", case, round(median(values), 1), unit, ratio, plain))
    return rows


def cases(system: DejaqSystem) -> dict[str, Callable[[Plan, int], Measured]]:
    """What is measured, called with the plan and a seed."""

    def send(load: Load, more: Columns, plan: Plan, **settings: Any) -> tuple[str, Measured]:
        topic = system.new_topic(**settings)

        def columns(part: slice) -> pa.RecordBatch:
            batch = record_batch(load, part)
            for name, column in more(part).items():
                batch = batch.append_column(name, column)
            return batch

        return topic, system.send(topic, batches(load), columns, plan.seconds)

    def enqueue(plan: Plan, seed: int) -> Measured:
        return send(far_load(plan.rows, system.clock.now_ms(), seed), _nothing, plan)[1]

    def enqueue_history(plan: Plan, seed: int) -> Measured:
        load = far_load(plan.rows, system.clock.now_ms(), seed)
        return send(load, _nothing, plan, history=True)[1]

    def enqueue_keys(plan: Plan, seed: int) -> Measured:
        return send(far_load(plan.rows, system.clock.now_ms(), seed), _keys(plan.rows), plan)[1]

    def enqueue_tags(plan: Plan, seed: int) -> Measured:
        return send(far_load(plan.rows, system.clock.now_ms(), seed), _tags(plan.rows), plan)[1]

    def drained(more: Columns, plan: Plan, seed: int, **settings: Any) -> Measured:
        load = past_load(plan.rows, system.clock.now_ms(), seed)
        topic, sent = send(load, more, plan, **settings)
        return system.drain(topic, sent.rows, plan.seconds)

    def lease_ack(plan: Plan, seed: int) -> Measured:
        return drained(_nothing, plan, seed)

    def lease_ack_history(plan: Plan, seed: int) -> Measured:
        return drained(_nothing, plan, seed, history=True)

    def lease_ack_priority(plan: Plan, seed: int) -> Measured:
        random = np.random.default_rng(seed)
        priorities = random.integers(0, 1 << 16, plan.rows, dtype=np.uint16)

        def columns(part: slice) -> dict[str, pa.Array]:
            return {"priority": pa.array(priorities[part])}

        return drained(columns, plan, seed, kind="priority")

    def lease_ack_fair(plan: Plan, seed: int) -> Measured:
        return in_turns([f"customer-{number:04}" for number in range(GROUPS)], plan, seed)

    def lease_ack_nested(plan: Plan, seed: int) -> Measured:
        groups = range(GROUPS)
        return in_turns([f"tenant-{n % TENANTS:02}.user-{n:04}" for n in groups], plan, seed)

    def in_turns(groups_of: list[str], plan: Plan, seed: int) -> Measured:
        names = pa.array(groups_of)
        groups = np.random.default_rng(seed).integers(0, GROUPS, plan.rows)

        def columns(part: slice) -> dict[str, pa.Array]:
            return {"group": names.take(pa.array(groups[part]))}

        return drained(columns, plan, seed, kind="fair")

    return {
        "enqueue": enqueue,
        "enqueue_history": enqueue_history,
        "enqueue_keys": enqueue_keys,
        "enqueue_tags": enqueue_tags,
        "lease_ack": lease_ack,
        "lease_ack_history": lease_ack_history,
        "lease_ack_priority": lease_ack_priority,
        "lease_ack_fair": lease_ack_fair,
        "lease_ack_nested": lease_ack_nested,
    }


def _nothing(_part: slice) -> dict[str, pa.Array]:
    return {}


def _tags(rows: int) -> Columns:
    """A column of lists of two tags, each one of a hundred, made beforehand."""
    names = pa.array([f"tag-{number:02}" for number in range(TAGS)])
    chosen = names.take(pa.array(np.random.default_rng(rows).integers(0, TAGS, 2 * rows)))
    tags = pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * rows + 1, 2, dtype=np.int32)), chosen)

    def columns(part: slice) -> dict[str, pa.Array]:
        return {"tags": tags[part]}

    return columns


def _keys(rows: int) -> Columns:
    """A column of keys, made beforehand as payloads are: order-0000000017 and so on."""
    texts = pa.py_buffer(b"".join(b"order-%010d" % number for number in range(rows)))

    def columns(part: slice) -> dict[str, pa.Array]:
        count = part.stop - part.start
        ends = np.arange(0, (count + 1) * KEY_BYTES, KEY_BYTES, dtype=np.int32)
        content = texts.slice(part.start * KEY_BYTES, count * KEY_BYTES)
        return {"key": pa.Array.from_buffers(pa.utf8(), count, [None, pa.py_buffer(ends), content])}

    return columns
