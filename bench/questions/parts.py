"""How fast are the parts by themselves: the engine, turns of groups, the journal?

Each part is measured by functions of the script beside this folder that has more of it:
`engine_parts.py`, `fair_parts.py`, `journal_parts.py`. The figures tell where the time of the whole
goes; they are not compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench import engine_parts, fair_parts, journal_parts
from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.system import Plan
from dejaqueue.engine.commands import Enqueue
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.rules import Rules
from dejaqueue.journal.interface import Entry
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.model import TopicKind

QUESTION = "parts"
ROUNDS_MAX = 3
ROWS = 1_000
"""In a batch."""

Report = Callable[[str], None]
Figures = dict[str, tuple[float, str]]


def _engine(quick: bool) -> Figures:
    """Processor time of each command on a batch, with a backlog."""
    messages = 100_000 if quick else 2_000_000
    engine, dice = Engine(0), np.random.default_rng(1)
    batches = messages // ROWS
    for position in range(1, batches + 1):
        dues_ms = dice.integers(0, engine_parts.SPAN_MS, ROWS)
        engine.apply(Enqueue(0, position, dues_ms, ()))
    watch = engine_parts.Stopwatch()
    engine_parts.commands_at(engine, ROWS, 20 if quick else 500, batches, watch)
    found = {}
    for name, times in watch.times.items():
        found[f"engine_{name.replace(' ', '_')}"] = (float(np.mean(times)) * 1e6, "µs")
    return found


def _fair(quick: bool) -> Figures:
    """Processor time of a message through add, lease and ack: in groups, and without."""
    messages = 50_000 if quick else 1_000_000
    many = messages // 100
    names, groups = [f"g{code}" for code in range(many)], fair_parts.zipf_groups(many, messages)
    found = {}
    for case, rules in (("timeline", Rules()), ("fair", Rules(TopicKind.FAIR))):
        found[f"groups_{case}"] = (fair_parts.run(rules, names, groups, ROWS)["all"], "ns")
    return found


def _journal(quick: bool, folder: Path) -> Figures:
    """Median time of an append of a batch, with its sync; and of sixteen with one."""
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        store = SegmentStore(Path(directory) / "store")
        journal, entry = store.open("append", 0), journal_parts.make_entry(ROWS)
        found = {}
        for count in (1, 16):
            entries = [entry] * count

            def append(entries: list[Entry] = entries) -> None:
                journal.append(entries, journal.tail, 1)

            median = journal_parts.measure(append, 10 if quick else 300)
            found[f"journal_append_{count}"] = (median, "µs")
        journal.close()
        store.close()
    return found


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    outcome = Outcome()
    values: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    for _ in range(min(plan.rounds, ROUNDS_MAX)):
        figures = _engine(plan.quick) | _fair(plan.quick) | _journal(plan.quick, plan.folder)
        for case, (value, unit) in figures.items():
            values.setdefault(case, []).append(value)
            units[case] = unit
    for case, found in values.items():
        outcome.spreads[f"dejaq/{case}"] = spread(found)
        median = outcome.spreads[f"dejaq/{case}"]["median"]
        outcome.rows.append(Row(QUESTION, "dejaq", case, round(median, 3), units[case]))
        report(f"{case}: {median:,.4g} {units[case]}")
    return outcome
