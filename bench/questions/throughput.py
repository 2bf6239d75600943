"""How many messages a second go in, and come out again?

- `enqueue`: one producer, batches of 1,000, 100 random bytes each, due at random times ahead.
- `lease_ack`: one consumer leases and acks 1,000 at a time, until all that was due is gone.
- `ack_one_by_one`: one consumer that acks message by message; each ack is confirmed in the end.
- `single`: 64 producers, one message per call, each call returns when its message is durable.

Every system has its turn in every round, on a new server with nothing in it. What counts is the
median of the rounds. A case ends after `rows` messages or `seconds`, whichever comes first. Beside
it the processor time of a message is kept: of the server, the client and their helpers, with what a
case does before its clock starts. `…_per_core` is what that time allows one core, `…_by_redis` the
rate of single messages beside that of Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.percentiles import spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.system import Plan, System, with_cost

QUESTION = "throughput"
UNIT = "messages/s"
PEER_OF = {"enqueue": "redis", "lease_ack": "redis", "single": "beanstalkd"}
"""What a case of DejaQ is compared with; a case named `single_…` like `single`."""

PER_CORE, BY_REDIS = ("enqueue", "lease_ack"), ("single", "single_asyncio")
CORE_UNIT = "messages/s of a core"

Report = Callable[[str], None]
ByCase = dict[tuple[str, str], list[float]]
"""A figure of each round, by system and case."""


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(plan.systems)
    rates: ByCase = {}
    costs: ByCase = {}
    for number in range(1, plan.rounds + 1):
        for kind in systems:
            _measure_turn(kind, plan, number, (rates, costs), report)
    outcome = Outcome(left_out=left_out)
    outcome.spreads = {
        f"{name}/{case}": spread(found) | {"processor_us": costs[name, case]}
        for (name, case), found in rates.items()
    }
    outcome.rows = rows_of(
        {key: spread(found)["median"] for key, found in rates.items()},
        {key: spread(found)["median"] for key, found in costs.items()},
    )
    return outcome


def rows_of(
    medians: dict[tuple[str, str], float], costs: dict[tuple[str, str], float] | None = None
) -> list[Row]:
    """The rows of medians by (system, case), with the ratio of each of DejaQ's to its peer's.

    Args:
        costs: likewise, processor time of a message, µs.
    """
    rows = []
    for (name, case), value in medians.items():
        peer = peer_case = None
        if name == "dejaq":
            peer_case = next((known for known in PEER_OF if case.startswith(known)), None)
            peer = PEER_OF.get(peer_case or "")
        other = medians.get((peer or "", peer_case or ""))
        ratio = round(value / other, 3) if other else None
        rows.append(
            Row(QUESTION, name, case, round(value, 1), UNIT, ratio, peer if other else None)
        )
    rows += _beside_redis(medians, costs or {})
    return sorted(rows, key=lambda row: _place(row.case))


def _beside_redis(
    medians: dict[tuple[str, str], float], costs: dict[tuple[str, str], float]
) -> list[Row]:
    """What a core does of each, and single messages, which have another peer, beside Redis'."""
    rows = []
    for case in PER_CORE:
        own, other = costs.get(("dejaq", case)), costs.get(("redis", case))
        for name, cost in (("redis", other), ("dejaq", own)):
            if cost:
                ratio = round(other / cost, 3) if other and name == "dejaq" else None
                to = None if ratio is None else "redis"
                value = round(1e6 / cost, 1)
                rows.append(Row(QUESTION, name, f"{case}_per_core", value, CORE_UNIT, ratio, to))
    theirs = medians.get(("redis", "single"))
    for case in BY_REDIS:
        rate = medians.get(("dejaq", case))
        if rate and theirs:
            ratio, shown = round(rate / theirs, 3), f"{case}_by_redis"
            rows.append(Row(QUESTION, "dejaq", shown, round(rate, 1), UNIT, ratio, "redis"))
    return rows


def _place(case: str) -> int:
    """Cases in their order, each with its variants behind it."""
    cases = list(PEER_OF)
    base = next((known for known in cases if case.startswith(known)), None)
    return len(cases) if base is None else cases.index(base)


def _measure_turn(
    kind: type[System],
    plan: Plan,
    number: int,
    taken: tuple[ByCase, ByCase],
    report: Report,
) -> None:
    rates, costs = taken
    system = kind()
    system.start(plan.folder)
    try:
        system.warm(plan)
        for case, run in system.cases().items():
            measured, processor_us = with_cost(system, partial(run, plan, number))
            rates.setdefault((kind.name, case), []).append(measured.per_second)
            costs.setdefault((kind.name, case), []).append(processor_us)
            report(f"round {number}: {kind.name} {case}: {measured.per_second:,.0f} {UNIT}")
    finally:
        system.stop()
