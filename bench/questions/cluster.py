"""What does a cluster of three brokers cost, and how long is it away when one of them dies?

- `enqueue_jetstream`: one producer with batches of 1,000 into a cluster of three brokers with
  JetStream beside each, three copies of everything, each on disk before it counts. Its ratio is to
  `enqueue_segments`: one broker and its own files, in the same round.
- `enqueue_postgresql`, `lease_ack_postgresql`, `through_postgresql`: one broker with its journal on
  PostgreSQL: in, out, and both (`through` = messages in and out again a second). Beside it queues
  as a table of the same server, `SELECT … FOR UPDATE SKIP LOCKED`, with a lease that is written
  (`leased`) or a transaction that stays open (`held`); ratios are to the faster of them.
- `hand_over_…`, `rolling_…`, `failover_…`: bench/outages.py. `hung_…`: bench/hung_journal.py.

The topic holds a million scheduled messages. Servers, brokers and clients share the machine's
cores: read rates as ratios. A ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from bench.hung_journal import hung_figures
from bench.load import far_load, past_load
from bench.outages import OUTAGES, Rates, Report, Size, outages_jetstream, outages_postgresql
from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.cluster import ClusterSystem
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import ServerFailed, let_in
from bench.systems.skip_locked import SkipLockedQueue
from bench.systems.system import Measured, Plan
from dejaqueue.errors import DejaQError
from dev.services import missing, start
from dev.services.service import ServiceFailed

QUESTION = "cluster"
UNIT = "messages/s"
ROUNDS_MAX = 3
TABLE_SECONDS_MAX = 4.0
TABLE_ROWS_MAX = 500_000
WARM_ROWS = 20_000
RATIO_OF = {
    "enqueue_jetstream": ("enqueue_segments", "segments"),
    "enqueue_postgresql": ("enqueue_skip_locked", "skip_locked"),
    "through_postgresql": ("through_skip_locked", "skip_locked"),
    "hung_beside_p99": ("hung_idle_p99", "idle"),
}
"""Case -> case of the same round that its ratio is to, and how that is shown."""


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    outcome = Outcome()
    lacking = {name: missing(name) for name in ("nats", "postgresql", "etcd")}
    outcome.left_out = [f"{name}: not installed: {text}" for name, text in lacking.items() if text]
    rates: Rates = {}
    size = Size(4, 2_000, 2) if plan.quick else Size(100, plan.rows, 10)
    parts: list[tuple[tuple[str, ...], Callable[[], None]]] = [
        (("nats",), lambda: rounds(rates, plan, report, jetstream_round)),
        (("postgresql",), lambda: rounds(rates, plan, report, postgresql_round)),
        (("postgresql",), lambda: _hung(rates, plan, report)),
        (("postgresql", "etcd"), lambda: outages_postgresql(rates, size, plan, report)),
        (("nats",), lambda: outages_jetstream(rates, size, plan, report)),
    ]
    for needed, run in parts:
        if any(lacking[name] for name in needed):
            continue
        try:
            run()
        except (ServerFailed, ServiceFailed, DejaQError) as error:
            # The others are worth having all the same.
            report(f"a part broke off: {error}")
            outcome.left_out.append(f"a part on {', '.join(needed)} broke off: {error}")
    outcome.rows = rows_of(rates)
    outcome.spreads = {f"{system_of(case)}/{case}": spread(v) for case, v in rates.items()}
    return outcome


def system_of(case: str) -> str:
    """Whose row it is."""
    return "postgresql" if "skip_locked" in case else "dejaq"


def rows_of(rates: Rates) -> list[Row]:
    """The rows of the figures of each round, by case."""
    rows = []
    for case, values in rates.items():
        other_case, ratio_to = RATIO_OF.get(case, ("", None))
        others = rates.get(other_case)
        ratio = None
        if others:
            ratio = round(median(a / b for a, b in zip(values, others, strict=False)), 3)
        unit = "s" if case.startswith(OUTAGES) else "ms" if case.startswith("hung") else UNIT
        value = round(median(values), 1 if unit == UNIT else 3)
        to = ratio_to if ratio is not None else None
        rows.append(Row(QUESTION, system_of(case), case, value, unit, ratio, to))
    return rows


def _hung(rates: Rates, plan: Plan, report: Report) -> None:
    for case, value in hung_figures(plan, report).items():
        rates.setdefault(case, []).append(value)


def rounds(
    rates: Rates, plan: Plan, report: Report, run: Callable[[Plan, int], dict[str, float]]
) -> None:
    """Run something as often as is planned, and note its figures."""
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        for case, value in run(plan, number).items():
            rates.setdefault(case, []).append(value)
            report(f"round {number}: {case}: {value:,.0f} {UNIT}")


# --- rates ------------------------------------------------------------------------------------


def jetstream_round(plan: Plan, number: int) -> dict[str, float]:
    """The embedded journal, then three copies, each on new brokers."""
    return {
        "enqueue_segments": _enqueue(DejaqSystem(), plan, number),
        "enqueue_jetstream": _enqueue(ClusterSystem(), plan, number),
    }


def _enqueue(system: DejaqSystem, plan: Plan, number: int) -> float:
    system.start(plan.folder)
    try:
        for rows in (min(plan.rows, WARM_ROWS), plan.rows):
            load = far_load(rows, system.clock.now_ms(), number)
            topic = system.new_topic()
            filled = system.fill(topic, load, plan.seconds)
        if system.count_live(topic) != filled.rows:
            raise AssertionError(f"{topic} has not {filled.rows} messages")
        return filled.per_second
    finally:
        system.stop()


def postgresql_round(plan: Plan, number: int) -> dict[str, float]:
    """A broker with its journal on PostgreSQL, then tables on the same server."""
    let_in(plan.folder)
    os.environ["DEJAQ_SERVICES_ROOT"] = str(plan.folder)
    plan = replace(plan, rows=min(plan.rows, TABLE_ROWS_MAX))
    with start("postgresql") as service:
        found = _in_and_out(DejaqSystem(service.url), plan, number)
        return found | _tables(service.url, plan, number)


def _in_and_out(system: DejaqSystem, plan: Plan, number: int) -> dict[str, float]:
    system.start(plan.folder)
    try:
        for rows in (min(plan.rows, WARM_ROWS), plan.rows):
            load = past_load(rows, system.clock.now_ms(), number)
            topic = system.new_topic()
            filled = system.fill(topic, load, plan.seconds)
            drained = system.drain(topic, filled.rows, plan.seconds)
    finally:
        system.stop()
    return {
        "enqueue_postgresql": filled.per_second,
        "lease_ack_postgresql": drained.per_second,
        "through_postgresql": through(filled, drained),
    }


def _tables(url: str, plan: Plan, number: int) -> dict[str, float]:
    short = replace(plan, seconds=min(plan.seconds, TABLE_SECONDS_MAX))
    queue_table = SkipLockedQueue(url)
    try:
        now_ms = DejaqSystem().clock.now_ms()
        filled = queue_table.enqueue(past_load(plan.rows, now_ms, number), short)
        # Half of it in each form: a table that gets empty gets faster.
        leased = queue_table.lease_ack(now_ms, short, filled.rows // 2)
        held = queue_table.take_commit(now_ms, short, filled.rows // 2)
    finally:
        queue_table.close()
    return {
        "enqueue_skip_locked": filled.per_second,
        "lease_ack_skip_locked_leased": leased.per_second,
        "lease_ack_skip_locked_held": held.per_second,
        "through_skip_locked": max(through(filled, leased), through(filled, held)),
    }


def through(filled: Measured, drained: Measured) -> float:
    """Messages that go in and out again a second, one after the other.

    >>> through(Measured(100, 1.0), Measured(100, 1.0))
    50.0
    """
    return 1 / (1 / filled.per_second + 1 / drained.per_second)
