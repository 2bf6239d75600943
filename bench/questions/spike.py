"""What if more is due in one second than a partition serves in it?

`--messages` divided by five (twenty million) are stored in one partition and due in the same
millisecond. Two programs have 12 consumers each, that ask for a million each. `delivered` and
`drained` are the seconds from the instant until the last message was handed over to a
program, and until the last ack was durable; `…_ahead` the same of a topic with `spike_ahead_ms`
of a minute, whose ratio is to the one without. `steady_p99` is the lateness of another topic with
1,000 messages a second, from a minute before the instant on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from bench.load import PAYLOAD_BYTES, Load, even_load
from bench.percentiles import percentile, spread
from bench.results import Outcome, Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import start_helper
from bench.systems.system import Plan

QUESTION = "spike"
PART_OF_MESSAGES = 5
AHEAD_MS, QUICK_AHEAD_MS = 60_000, 5_000
PROGRAMS, CONSUMERS, PREFETCH = 2, 12, 1_000_000
FILL_ROWS_PER_MS = 400
FILL_ROWS = 1_000_000
BEFORE_MS = 5_000
"""What is left for the consumers to start in, and for a slow machine."""
STEADY_PER_SECOND = 1_000
STEADY_MS = 5_000
"""So long the other topic goes on after the instant; what is still being drained then, is
drained alone."""
DRAIN_SECONDS_MAX = 180.0
LOOK_SECONDS = 0.05
ROUNDS_MAX = 3

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    outcome, found = Outcome(), dict[str, list[float]]()
    ahead_ms = QUICK_AHEAD_MS if plan.quick else AHEAD_MS
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        for case in ("", "_ahead")[:: 1 if number % 2 else -1]:
            # One second of a quick run is one of few messages: the partition is said to be slow.
            slow = ("dispatch.partition_rows_per_s=10000",) if plan.quick else ()
            system = DejaqSystem(settings=slow)
            system.start(plan.folder)
            try:
                setting = {"spike_ahead_ms": ahead_ms} if case else {}
                figures = _turn(system, plan, number, ahead_ms, setting)
            finally:
                system.stop()
            for name, value in figures.items():
                found.setdefault(name + case, []).append(value)
            shown = ", ".join(f"{name}{case} {value:.4g}" for name, value in figures.items())
            report(f"round {number}: {shown}")
    outcome.spreads = {f"dejaq/{name}": spread(values) for name, values in found.items()}
    outcome.rows = [_row(name, values, found) for name, values in sorted(found.items())]
    return outcome


def _row(name: str, values: list[float], found: dict[str, list[float]]) -> Row:
    """The row of a figure, with its ratio to that without `spike_ahead_ms`."""
    value = sum(values) if name.startswith("early") else round(spread(values)["median"], 4)
    plain = name.removesuffix("_ahead")
    unit = "messages" if plain == "early" else "ms" if plain == "steady_p99" else "s"
    if plain == name or unit == "messages":
        return Row(QUESTION, "dejaq", name, value, unit)
    ratio = round(value / spread(found[plain])["median"], 4)
    return Row(QUESTION, "dejaq", name, value, unit, ratio, "as they come")


def _turn(
    system: DejaqSystem, plan: Plan, seed: int, ahead_ms: int, setting: dict[str, int]
) -> dict[str, float]:
    """One spike; its figures by name."""
    rows = plan.messages // PART_OF_MESSAGES
    hot, steady = system.new_topic(**setting), system.new_topic()
    clock = system.clock
    instant_ms = clock.now_ms() + BEFORE_MS + ahead_ms + rows // FILL_ROWS_PER_MS
    block = np.random.default_rng(seed).bytes(FILL_ROWS * PAYLOAD_BYTES)
    for first in range(0, rows, FILL_ROWS):
        dues_ms = np.full(min(FILL_ROWS, rows - first), instant_ms, dtype=np.int64)
        system.fill(hot, Load(block, dues_ms), DRAIN_SECONDS_MAX)
    steady_rows = (ahead_ms + STEADY_MS) * STEADY_PER_SECOND // 1_000
    even = even_load(steady_rows, instant_ms - ahead_ms, STEADY_PER_SECOND, seed)
    system.fill(steady, even, DRAIN_SECONDS_MAX)
    if clock.now_ms() > instant_ms - ahead_ms:
        raise AssertionError("the machine is too slow: scheduling took until the spike begins")
    path = plan.folder / f"steady-{seed}.npy"
    time.sleep(max(0.0, (instant_ms - ahead_ms - BEFORE_MS - clock.now_ms()) / 1_000))
    asked = CONSUMERS, PREFETCH, instant_ms
    with ExitStack() as stack:
        beside = start_helper("bench.receiver", system.url, steady, steady_rows, path)
        programs = [
            start_helper("bench.spike_receiver", system.url, hot, *asked) for _ in range(PROGRAMS)
        ]
        for program in (beside, *programs):
            stack.enter_context(program)
            stack.callback(program.kill)
        drained = _until_drained(system, hot, instant_ms)
        found = [json.loads(program.communicate()[0]) for program in programs]
        if beside.wait(DRAIN_SECONDS_MAX) != 0:
            raise AssertionError("the other topic's consumer failed")
    given = sum(one["messages"] for one in found)
    if given != rows:
        raise AssertionError(f"received {given} of {rows}")
    lateness_us = np.load(path)[1]
    path.unlink()
    return {
        "delivered": max(one["last"] for one in found),
        "drained": drained,
        "steady_p99": percentile(lateness_us / 1_000, 99),
        "early": sum(one["early"] for one in found) + int((lateness_us < 0).sum()),
    }


def _until_drained(system: DejaqSystem, topic: str, instant_ms: int) -> float:
    """Seconds from the instant until the broker has nothing of the topic any more."""
    until_ms = instant_ms + 1_000 * DRAIN_SECONDS_MAX
    while True:
        left = system.count_live(topic)
        now_ms = system.clock.now_ms()
        if not left:
            return float(now_ms - instant_ms) / 1_000
        if now_ms > until_ms:
            raise AssertionError(f"{left} messages are left")
        time.sleep(LOOK_SECONDS)
