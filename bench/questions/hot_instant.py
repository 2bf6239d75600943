"""What happens when a million messages are due in the same millisecond?

One topic has them, another has 1,000 messages a second, evenly spread, before, during and after.
Each has one consumer in a program of its own. `delivered` and `drained` are the seconds from the
instant until the last of the million was received, and until the last ack was durable.
`steady_p99` is the lateness of the other topic's messages that were due while the million was
being drained; `steady_p99_whole` that of all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.load import PAYLOAD_BYTES, Load, even_load
from bench.percentiles import percentile, spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.servers import start_helper
from bench.systems.system import Plan, Stopwatch

QUESTION = "hot_instant"
STEADY_PER_SECOND = 1_000
BEFORE_MS, AFTER_MS, AHEAD_MS = 3_000, 7_000, 8_000
QUICK_BEFORE_MS, QUICK_AFTER_MS, QUICK_AHEAD_MS = 500, 1_000, 3_000
FILL_ROWS_PER_MS = 400
"""`--rows 20000000` and the like take longer to be scheduled."""
ROUNDS_MAX = 3
WAIT_SECONDS_MAX = 60.0
RECEIVER_SECONDS = 5.0
"""The other topic's consumer is started so long before its first message."""
HOT_BATCH_ROWS = 8_000
HOT_PREFETCH_ROWS = 100_000

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(("dejaq",))
    found: dict[str, list[float]] = {}
    outcome = Outcome(left_out=left_out)
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        system: Any = systems[0]()
        system.start(plan.folder)
        try:
            figures, outcome.series = _one_round(system, plan, number)
        finally:
            system.stop()
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        report(f"round {number}: {shown}")
    units = {"steady_p99": "ms", "steady_p99_whole": "ms", "steady_max": "ms"}
    for name, values in found.items():
        outcome.spreads[f"dejaq/{name}"] = spread(values)
        median = round(outcome.spreads[f"dejaq/{name}"]["median"], 4)
        unit = "messages" if name == "early" else units.get(name, "s")
        value = sum(values) if name == "early" else median
        outcome.rows.append(Row(QUESTION, "dejaq", name, value, unit))
    return outcome


def _one_round(system: Any, plan: Plan, seed: int) -> tuple[dict[str, float], dict[str, Any]]:
    hot, steady = system.new_topic(), system.new_topic()
    clock = system.clock
    block = np.random.default_rng(seed).bytes(plan.rows * PAYLOAD_BYTES)
    before_ms, after_ms = BEFORE_MS, AFTER_MS
    ahead_ms = max(AHEAD_MS, BEFORE_MS + plan.rows // FILL_ROWS_PER_MS)
    if plan.quick:
        before_ms, after_ms, ahead_ms = QUICK_BEFORE_MS, QUICK_AFTER_MS, QUICK_AHEAD_MS
    instant_ms = clock.now_ms() + ahead_ms
    dues_ms = np.full(plan.rows, instant_ms, dtype=np.int64)
    steady_rows = (before_ms + after_ms) * STEADY_PER_SECOND // 1000
    even = even_load(steady_rows, instant_ms - before_ms, STEADY_PER_SECOND, seed)
    system.fill(steady, even, WAIT_SECONDS_MAX)
    system.fill(hot, Load(block, dues_ms), WAIT_SECONDS_MAX)
    if clock.now_ms() > instant_ms - before_ms:
        raise AssertionError("the machine is too slow: scheduling took until the instant")
    path = plan.folder / f"steady-{seed}.npy"
    # It gives up where nothing comes for long, and what was scheduled soon leaves much time.
    time.sleep(max(0.0, (instant_ms - before_ms - clock.now_ms()) / 1_000 - RECEIVER_SECONDS))
    receiver = start_helper("bench.receiver", system.url, steady, steady_rows, path)
    curve = _drain(system, hot, plan.rows, instant_ms)
    if receiver.wait(WAIT_SECONDS_MAX) != 0:
        raise AssertionError("the other topic's consumer failed")
    late = np.load(path)
    path.unlink()
    return _figures(curve, late, instant_ms)


def _drain(system: Any, topic: str, rows: int, instant_ms: int) -> list[tuple[float, int, float]]:
    """Consume and ack; (seconds after the instant, messages so far, first lateness) per batch."""
    clock = system.clock
    curve: list[tuple[float, int, float]] = []
    received = 0
    watch = Stopwatch(WAIT_SECONDS_MAX)
    for batch in system.client.consume_batches(
        topic,
        batch_rows=HOT_BATCH_ROWS,
        prefetch=HOT_PREFETCH_ROWS,
        idle_ms=int(1000 * WAIT_SECONDS_MAX),
    ):
        at = clock.now_us() / 1e6 - instant_ms / 1e3
        received += len(batch)
        is_last = received >= rows or watch.is_over()
        curve.append((at, received, at))
        batch.ack(wait=is_last)
        if is_last:
            break
    if received != rows:
        raise AssertionError(f"received {received} of {rows}")
    curve.append((clock.now_us() / 1e6 - instant_ms / 1e3, received, 0.0))
    system.check_left(topic)
    return curve


def _figures(
    curve: list[tuple[float, int, float]], late: npt.NDArray[np.int64], instant_ms: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """`late` has a row (due ms, lateness us) per message of the other topic."""
    drained = curve[-1][0]
    during = (late[0] >= instant_ms) & (late[0] <= instant_ms + 1000 * drained)
    lateness_ms = late[1] / 1000
    early = int(np.sum(late[1] < 0)) + sum(1 for at, _, _ in curve if at < 0)
    figures = {
        "first": curve[0][0],
        "delivered": curve[-2][0],
        "drained": drained,
        "steady_p99": percentile(lateness_ms[during], 99),
        "steady_p99_whole": percentile(lateness_ms, 99),
        "steady_max": percentile(lateness_ms, 100),
        "early": early,
    }
    series = {
        "drained": {"seconds": [c[0] for c in curve], "rows": [c[1] for c in curve]},
        "steady": {
            "seconds": ((late[0] - instant_ms) / 1000).tolist(),
            "ms": lateness_ms.tolist(),
        },
    }
    return figures, series
