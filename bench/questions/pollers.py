"""Do clients that wait over HTTP make other messages late?

One topic has 10,000 messages a second, evenly spread, for a consumer of the Python client in a
program of its own. First alone (`alone_…`), then beside 200 clients that wait over HTTP
(`POST …/lease` with `wait_ms`) at another topic, which has a message for each of them every second
(`beside_…`). Lateness is the time from a message's due time to the moment the consumer has it.
`polls` is how many waits were answered a second; each of their messages is acked, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.load import even_load
from bench.percentiles import percentile, spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.servers import start_helper
from bench.systems.system import Plan

QUESTION = "pollers"
POLLERS = 200
PER_SECOND, QUICK_PER_SECOND = 10_000, 2_000
AHEAD_MS = 3_000
ROUNDS_MAX = 3
WAIT_SECONDS_MAX = 120.0
PERCENTS = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}

Report = Callable[[str], None]
Int64s = npt.NDArray[np.int64]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(("dejaq",))
    found: dict[str, list[float]] = {}
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        system: Any = systems[0]()
        system.start(plan.folder)
        try:
            figures = _lateness(system, plan, number, "alone_")
            with_pollers, polls = _beside_pollers(system, plan, number)
            figures |= with_pollers | {"polls": polls}
        finally:
            system.stop()
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
        report(f"round {number}: " + ", ".join(f"{n} {v:.4g}" for n, v in figures.items()))
    return _outcome(found, left_out)


def _lateness(system: Any, plan: Plan, seed: int, prefix: str) -> dict[str, float]:
    """Percentiles of the lateness at a consumer of the Python client, in milliseconds."""
    late_us = consume(system, plan, seed)
    figures = {f"{prefix}{name}": percentile(late_us, p) / 1000 for name, p in PERCENTS.items()}
    return figures | {f"{prefix}early": float(np.sum(late_us < 0))}


def consume(system: Any, plan: Plan, seed: int) -> Int64s:
    """Lateness of every message at a consumer in a program of its own, in microseconds."""
    per_second = QUICK_PER_SECOND if plan.quick else PER_SECOND
    topic, rows = system.new_topic(), int(per_second * plan.seconds)
    system.fill(
        topic, even_load(rows, system.clock.now_ms() + AHEAD_MS, per_second, seed), AHEAD_MS / 1000
    )
    path = plan.folder / f"pollers-{seed}.npy"
    receiver = start_helper("bench.receiver", system.url, topic, rows, path)
    if receiver.wait(WAIT_SECONDS_MAX) != 0:
        raise AssertionError("the consumer failed")
    late: Int64s = np.load(path)[1]
    path.unlink()
    return late


def _beside_pollers(system: Any, plan: Plan, seed: int) -> tuple[dict[str, float], float]:
    """The same beside 200 clients that wait, and how often they were answered a second."""
    topic = system.new_topic()
    pollers = start_helper("bench.pollers", system.http_url, topic, POLLERS)
    began_us = system.clock.now_us()
    seconds = plan.seconds + AHEAD_MS / 1000
    load = even_load(int(POLLERS * seconds), system.clock.now_ms(), POLLERS, seed)
    system.fill(topic, load, AHEAD_MS / 1000)
    figures = _lateness(system, plan, seed, "beside_")
    passed = (system.clock.now_us() - began_us) / 1e6
    counts = json.loads(pollers.communicate(timeout=WAIT_SECONDS_MAX)[0])
    if counts["failed"]:
        raise AssertionError(f"{counts['failed']} requests failed")
    if counts["messages"] < load.rows * 0.9:
        raise AssertionError(f"{counts['messages']} of {load.rows} messages came over HTTP")
    return figures, counts["polls"] / passed


def _outcome(found: dict[str, list[float]], left_out: list[str]) -> Outcome:
    outcome = Outcome(left_out=left_out)
    for name, values in found.items():
        is_count = name.endswith("early")
        outcome.spreads[f"dejaq/{name}"] = spread(values)
        median = round(outcome.spreads[f"dejaq/{name}"]["median"], 4)
        unit = "messages" if is_count else "answers/s" if name == "polls" else "ms"
        value = sum(values) if is_count else median
        outcome.rows.append(Row(QUESTION, "dejaq", name, value, unit))
    medians = {row.case: row.value for row in outcome.rows}
    for index, row in enumerate(outcome.rows):
        alone = row.case.replace("beside_", "alone_")
        if row.case != alone and row.unit == "ms":
            ratio = round(row.value / medians[alone], 4)
            outcome.rows[index] = Row(
                QUESTION, "dejaq", row.case, row.value, row.unit, ratio, alone
            )
    return outcome
