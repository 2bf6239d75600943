"""How fast are the parts by themselves: the order index, the engine, the journal?

Each file `bench/parts/*.py` measures one part: its function `measure(quick)` answers with figures
by case, each (value, unit). They tell where the time of the whole goes; they are not compared.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.system import Plan

QUESTION = "parts"
ROUNDS_MAX = 3

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    outcome = Outcome()
    try:
        parts = importlib.import_module("bench.parts")
    except ModuleNotFoundError:
        outcome.left_out.append("parts: there is no bench/parts yet")
        return outcome
    found: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    names = sorted(module.name for module in pkgutil.iter_modules(parts.__path__))
    for _ in range(min(plan.rounds, ROUNDS_MAX)):
        for name in names:
            figures = importlib.import_module(f"bench.parts.{name}").measure(plan.quick)
            for case, (value, unit) in figures.items():
                found.setdefault(f"{name}_{case}", []).append(value)
                units[f"{name}_{case}"] = unit
    for case, values in found.items():
        outcome.spreads[f"dejaq/{case}"] = spread(values)
        median = outcome.spreads[f"dejaq/{case}"]["median"]
        outcome.rows.append(Row(QUESTION, "dejaq", case, round(median, 3), units[case]))
        report(f"{case}: {median:,.4g} {units[case]}")
    return outcome
