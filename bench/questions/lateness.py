"""How late is a message, when nothing else goes on?

10,000 messages a second, evenly spread, all scheduled 10 seconds or more ahead. A message's
lateness is the time from its due time to the moment the application has it, by the clock of the
machine, which is one for all. `early` counts those that came before their time.

DejaQ is measured three times: batches (`consume_batches`), one by one (`consume`, the cases
`consume_…`), and batches at 100,000 a second for five seconds (`at_100k_…`). Redis is polled: lease
what is due, ack, and if nothing was due sleep for a millisecond. beanstalkd is not asked: its
delays are whole seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.load import Load, even_load
from bench.percentiles import percentile, spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.system import Plan
from dejaqueue.clock import SystemClock

QUESTION = "lateness"
PER_SECOND = 10_000
AHEAD_MS = 10_000
SPAN_SECONDS = 20.0
ROUNDS_MAX = 3
POLL_SECONDS = 0.001
PERCENTS = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}

Int64s = npt.NDArray[np.int64]
Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(tuple(n for n in plan.systems if n != "beanstalkd"))
    measured: dict[tuple[str, str], list[Int64s]] = {}
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        for kind in systems:
            for prefix, run in RUNS[kind.name].items():
                system = kind()
                system.start(plan.folder)
                try:
                    late_us = run(system, plan, number)
                finally:
                    system.stop()
                measured.setdefault((kind.name, prefix), []).append(late_us)
                report(f"round {number}: {kind.name} {prefix}{summary(late_us)}")
    outcome = Outcome(left_out=[*left_out, "beanstalkd: its delays are whole seconds"])
    for (name, prefix), rounds in measured.items():
        _add_rows(outcome, name, prefix, rounds)
    _add_ratios(outcome)
    return outcome


def summary(late_us: Int64s) -> str:
    """The percentiles on one line."""
    texts = [f"{name} {percentile(late_us, p) / 1000:.3f} ms" for name, p in PERCENTS.items()]
    return ", ".join([f"{len(late_us):,} messages", *texts, f"early {np.sum(late_us < 0)}"])


def dejaq_batches(
    system: Any, plan: Plan, seed: int, per_second: int = PER_SECOND, seconds: float = SPAN_SECONDS
) -> Int64s:
    """Lateness with `consume_batches`, in microseconds."""
    topic = system.new_topic()
    load = _schedule(plan, system.clock, seed, per_second, seconds)
    system.fill(topic, load, AHEAD_MS / 1000)
    now_us = system.clock.now_us
    received_us, counts, dues = [], [], []
    left = load.rows
    for batch in system.client.consume_batches(topic, idle_ms=2 * AHEAD_MS):
        received_us.append(now_us())
        counts.append(len(batch))
        dues.append(batch.dues_ms)
        left -= counts[-1]
        batch.ack(wait=left == 0)
        if left == 0:
            break
    _check_all(left, load)
    dues_ms = np.concatenate(dues)
    received = np.repeat(np.array(received_us, dtype=np.int64), counts)
    return np.asarray(received - 1000 * dues_ms, dtype=np.int64)


def dejaq_100k(system: Any, plan: Plan, seed: int) -> Int64s:
    """Lateness with `consume_batches` at ten times the rate, in microseconds."""
    return dejaq_batches(system, plan, seed, 10 * PER_SECOND, SPAN_SECONDS / 4)


def dejaq_one_by_one(system: Any, plan: Plan, seed: int) -> Int64s:
    """Lateness with `consume`, in microseconds."""
    topic = system.new_topic()
    load = _schedule(plan, system.clock, seed)
    system.fill(topic, load, AHEAD_MS / 1000)
    now_us = system.clock.now_us
    received_us: list[int] = []
    dues_ms: list[int] = []
    for message in system.client.consume(topic, idle_ms=2 * AHEAD_MS):
        received_us.append(now_us())
        dues_ms.append(message.due_ms)
        message.ack(wait=False)
        if len(received_us) == load.rows:
            break
    _check_all(load.rows - len(received_us), load)
    return np.array(received_us, dtype=np.int64) - 1000 * np.array(dues_ms, dtype=np.int64)


def redis_polled(system: Any, plan: Plan, seed: int) -> Int64s:
    """Lateness of a polling Redis consumer, in microseconds."""
    clock = SystemClock()
    load = _schedule(plan, clock, seed)
    system.fill(load, AHEAD_MS / 1000)
    received_us, counts, ids = [], [], []
    left = load.rows
    end_ms = int(load.dues_ms[-1]) + 2 * AHEAD_MS
    while left > 0 and clock.now_ms() < end_ms:
        leased, _ = system.lease_batch()
        if not leased:
            time.sleep(POLL_SECONDS)
            continue
        received_us.append(clock.now_us())
        counts.append(len(leased))
        ids += leased
        left -= system.ack_batch(leased)
    _check_all(left, load)
    dues_ms = load.dues_ms[np.array(ids, dtype=np.int64)]
    return np.repeat(np.array(received_us, dtype=np.int64), counts) - 1000 * dues_ms


RUNS: dict[str, dict[str, Callable[[Any, Plan, int], Int64s]]] = {
    "dejaq": {"": dejaq_batches, "consume_": dejaq_one_by_one, "at_100k_": dejaq_100k},
    "redis": {"": redis_polled},
}


def _schedule(
    plan: Plan,
    clock: SystemClock,
    seed: int,
    per_second: int = PER_SECOND,
    seconds: float = SPAN_SECONDS,
) -> Load:
    seconds = plan.seconds if plan.quick else seconds
    ahead_ms = 1_500 if plan.quick else AHEAD_MS
    per_second = 2_000 if plan.quick else per_second
    return even_load(int(per_second * seconds), clock.now_ms() + ahead_ms, per_second, seed)


def _check_all(left: int, load: Load) -> None:
    if left:
        raise AssertionError(f"{left} of {load.rows} messages did not come")


def _add_rows(outcome: Outcome, name: str, prefix: str, rounds: list[Int64s]) -> None:
    for short, percent in PERCENTS.items():
        found = spread([percentile(late_us, percent) / 1000 for late_us in rounds])
        case = prefix + short
        outcome.spreads[f"{name}/{case}"] = found
        outcome.rows.append(Row(QUESTION, name, case, round(found["median"], 4), "ms"))
    early = sum(int(np.sum(late_us < 0)) for late_us in rounds)
    outcome.rows.append(Row(QUESTION, name, f"{prefix}early", early, "messages"))
    whole = np.concatenate(rounds)
    percents = [*np.arange(0.5, 99.5, 0.5), *np.arange(99.5, 99.99, 0.01), 99.99, 99.999]
    outcome.series[f"{name} {prefix.rstrip('_')}".strip()] = {
        "percent": [float(p) for p in percents],
        "ms": [max(percentile(whole, float(p)) / 1000, 0.001) for p in percents],
    }


def _add_ratios(outcome: Outcome) -> None:
    """DejaQ's batches against Redis, percentile by percentile."""
    peers = {row.case: row.value for row in outcome.rows if row.system == "redis"}
    for index, row in enumerate(outcome.rows):
        other = peers.get(row.case)
        if row.system == "dejaq" and row.unit == "ms" and other:
            ratio = round(row.value / other, 4)
            outcome.rows[index] = Row(
                row.question, row.system, row.case, row.value, row.unit, ratio, "redis"
            )
