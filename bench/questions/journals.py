"""What does it cost to keep messages on a server instead of in files?

The same broker and the same load with each journal, in turn: `enqueue_…` is one producer with
batches of 1,000, 100 random bytes each; `lease_ack_…` one consumer that leases and acks 1,000 at a
time until all is gone; `through_…` both together, messages in and out again a second. The ratio of
each is to the embedded segment journal, in the same run. A queue as a table of PostgreSQL, and
JetStream, are beside it in `cluster`.

Server, broker, producer and consumer share the machine's cores: read the figures as ratios.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.load import past_load
from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import let_in, new_folder
from bench.systems.system import Measured, Plan
from dev.services import missing, start

QUESTION = "journals"
UNIT = "messages/s"
SERVERS = ("postgresql", "mariadb")
CASES = ("enqueue", "lease_ack", "through")

Report = Callable[[str], None]
Rates = dict[tuple[str, str], list[float]]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    outcome = Outcome()
    there = []
    for name in SERVERS:
        lacking = missing(name)
        if lacking:
            outcome.left_out.append(f"{name}: not installed: {lacking}")
        else:
            there.append(name)
    rates: Rates = {}
    for number in range(1, plan.rounds + 1):
        _turn("segments", None, plan, number, rates, report)
        _turn("sqlite", _sqlite(plan), plan, number, rates, report)
        for name in there:
            _server_turn(name, plan, number, rates, report)
    outcome.spreads = {f"dejaq/{c}_{name}": spread(v) for (name, c), v in rates.items()}
    outcome.rows = rows_of({key: spread(found)["median"] for key, found in rates.items()})
    return outcome


def rows_of(medians: dict[tuple[str, str], float]) -> list[Row]:
    """Rows of medians by (journal, case), with the ratios that the page shows."""
    rows = []
    for (name, case), value in medians.items():
        other = medians.get(("segments", case)) if name != "segments" else None
        ratio = round(value / other, 3) if other else None
        shown, to = f"{case}_{name}", "segments" if other else None
        rows.append(Row(QUESTION, "dejaq", shown, round(value, 1), UNIT, ratio, to))
    return sorted(rows, key=lambda row: [row.case.startswith(case) for case in CASES], reverse=True)


def _sqlite(plan: Plan) -> str:
    return f"sqlite:///{new_folder(plan.folder, 'sqlite')}/records.db"


def _server_turn(name: str, plan: Plan, number: int, rates: Rates, report: Report) -> None:
    os.environ["DEJAQ_SERVICES_ROOT"] = str(plan.folder)
    let_in(plan.folder)
    with start(name) as service:
        _turn(name, service.url, plan, number, rates, report)


def _turn(
    name: str, journal: str | None, plan: Plan, number: int, rates: Rates, report: Report
) -> None:
    system = DejaqSystem(journal)
    system.start(plan.folder)
    try:
        for rows, counted in ((min(plan.rows, 20_000), False), (plan.rows, True)):
            topic = system.new_topic()
            load = past_load(rows, system.clock.now_ms(), number)
            filled = system.fill(topic, load, plan.seconds)
            drained = system.drain(topic, filled.rows, plan.seconds)
            if counted:
                _note(name, filled, drained, number, rates, report)
    finally:
        system.stop()


def _note(
    name: str, filled: Measured, drained: Measured, number: int, rates: Rates, report: Report
) -> None:
    through = 1 / (1 / filled.per_second + 1 / drained.per_second)
    figures = (filled.per_second, drained.per_second, through)
    for case, value in zip(CASES, figures, strict=True):
        rates.setdefault((name, case), []).append(value)
        report(f"round {number}: {name} {case}: {value:,.0f} {UNIT}")
