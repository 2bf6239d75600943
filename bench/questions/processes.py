"""What does a message cost where processes divide a directory, and what do two of them reach?

- `in_0`, `in_1`, `in_2`: batches of 1,000 into a topic of two partitions, in two shards. 0 is a
  broker that has its directory to itself, 1 and 2 are `--processes 1` and `2`.
- `out_0`, `out_1`, `out_2`: out again by one consumer, acked batch by batch.
- `singles_0`, `singles_1`, `singles_2`: four programs that send one message a call.

Beside the rate the processor time of a message, of all processes and the client together, is
measured: its rows end in `_us`. A ratio is the median of the rounds' ratios to the case that ends
in `_1`. Brokers of a round run one after the other, in an order that turns. Two processes need two
cores and a client that leaves them something of these: the rates are worth reading on a quiet
machine with four cores or more, processor time on any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.load import past_load
from bench.percentiles import spread
from bench.questions.many import Found, Report, rows_of
from bench.results import Outcome
from bench.systems.dejaq import DejaqSystem
from bench.systems.system import WARM_ROWS, Measured, Plan, with_cost

QUESTION = "processes"
COUNTS = (0, 1, 2)
ROUNDS_MAX = 5
SECONDS_MAX = 5.0


class DividedSystem(DejaqSystem):
    """A broker of so many processes; 0 = of one that has its directory to itself."""

    def __init__(self, count: int) -> None:
        super().__init__(settings=[f"server.processes={count}"] if count else ())

    def new_topic(self, **settings: Any) -> str:
        """Create a topic that nothing is in, of two shards."""
        return super().new_topic(partitions=2, spread=2, **settings)


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    found: Found = {}
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        turn = number % len(COUNTS)
        for count in COUNTS[turn:] + COUNTS[:turn]:
            _measure_once(DividedSystem(count), count, plan, number, found, report)
    outcome = Outcome(rows=rows_of(found, QUESTION))
    outcome.spreads = {
        f"dejaq/{case}": spread([rate for rate, _ in pairs])
        | {"processor_us": [cost for _, cost in pairs]}
        for case, pairs in found.items()
    }
    return outcome


def _measure_once(
    system: DividedSystem, count: int, plan: Plan, number: int, found: Found, report: Report
) -> None:
    seconds = min(plan.seconds, SECONDS_MAX)
    topic, sent, rows = "", 0, WARM_ROWS

    def fill() -> Measured:
        nonlocal topic, sent
        topic = system.new_topic()
        load = past_load(rows, system.clock.now_ms(), number)
        measured = system.fill(topic, load, seconds)
        sent = measured.rows
        return measured

    cases: dict[str, Callable[[], Measured]] = {
        "in": fill,
        "out": lambda: system.drain(topic, sent, seconds),
    }
    if not plan.quick:  # four programs take longer to start than all the rest
        cases["singles"] = lambda: system.single_programs(plan, number)
    system.start(plan.folder)
    try:
        for name in ("in", "out"):
            cases[name]()
        rows = plan.rows
        for name, run in cases.items():
            measured, processor_us = with_cost(system, run)
            found.setdefault(f"{name}_{count}", []).append((measured.per_second, processor_us))
            report(
                f"round {number}: {name}_{count}: {measured.per_second:,.0f} messages/s, "
                f"{processor_us:.2f} µs a message"
            )
    finally:
        system.stop()
