"""What do turns between 10,000 groups cost, and how even are they?

Messages of 10,000 groups whose backlogs are as unequal as such things are (Zipf: the first group
has ten thousand times as many as the last would, which has a few all the same) wait in a timeline
and, the same ones, in a fair topic. One consumer leases and acks 1,000 at a time. `lease_ack` is
the fair topic's rate; its ratio is that to the timeline's in the same run. `jain` is Jain's index
over what each group got of the first half of what the smallest groups have, when all still have
messages: 1 = each the same, 1/10,000 = one got all. `enqueue` likewise. `enqueue_priority` and
`lease_ack_priority` are those of a fair topic that orders within its groups by priority, of which
there are ten; their ratio is that to the fair topic by arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load import Int64s, past_load
from bench.percentiles import spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.system import Measured, Plan

QUESTION = "fair"
GROUPS_MAX = 10_000
ROWS_PER_GROUP_MIN = 5
UNIT = "messages/s"
TIMELINE = "dejaq's timeline"
BY_ARRIVAL = "dejaq's fair topic by arrival"
LEVELS = 10
SETTINGS: dict[str, dict[str, str]] = {
    "timeline": {"kind": "timeline"},
    "fair": {"kind": "fair"},
    "priority": {"kind": "fair", "group_order": "priority"},
}
"""What each topic that is measured is made with."""

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(("dejaq",))
    if not systems:
        return Outcome(left_out=left_out)
    found: dict[str, list[float]] = {}
    for number in range(1, plan.rounds + 1):
        _measure_turn(plan, number, found, report)
    outcome = Outcome()
    outcome.spreads = {f"dejaq/{case}": spread(values) for case, values in found.items()}
    medians = {case: spread(values)["median"] for case, values in found.items()}
    for case in ("enqueue", "lease_ack"):
        timeline = medians[f"{case}_timeline"]
        ratio = round(medians[case] / timeline, 3)
        outcome.rows.append(
            Row(QUESTION, "dejaq", case, round(medians[case], 1), UNIT, ratio, TIMELINE)
        )
        outcome.rows.append(Row(QUESTION, "dejaq", f"{case}_timeline", round(timeline, 1), UNIT))
        by_priority = medians[f"{case}_priority"]
        ratio = round(by_priority / medians[case], 3)
        row = Row(
            QUESTION, "dejaq", f"{case}_priority", round(by_priority, 1), UNIT, ratio, BY_ARRIVAL
        )
        outcome.rows.append(row)
    outcome.rows.append(Row(QUESTION, "dejaq", "jain", round(medians["jain"], 6), "of 1"))
    return outcome


def _measure_turn(plan: Plan, number: int, found: dict[str, list[float]], report: Report) -> None:
    system = DejaqSystem()
    system.start(plan.folder)
    try:
        # In turn, so that neither kind always has the warmer machine.
        kinds = list(SETTINGS)
        for kind in kinds if number % 2 else reversed(kinds):
            rates = _Turn(system, plan, number, kind).run()
            for case, value in rates.items():
                found.setdefault(case, []).append(value)
                report(f"round {number}: {case}: {value:,.4g}")
    finally:
        system.stop()


class _Turn:
    """One kind of topic in one round: filled, then drained."""

    def __init__(self, system: Any, plan: Plan, seed: int, kind: str) -> None:
        self._system, self._plan, self._kind = system, plan, kind
        self._topic = f"{kind}-{seed}"
        self._groups = zipf_groups(plan.rows, seed)
        self._load = past_load(plan.rows, system.clock.now_ms(), seed)

    def run(self) -> dict[str, float]:
        """Rates, and Jain's index of a fair topic, by case."""
        self._system.client.create_topic(self._topic, **SETTINGS[self._kind])
        suffix = "" if self._kind == "fair" else f"_{self._kind}"
        groups = pa.array([f"customer-{group}" for group in range(int(self._groups.max()) + 1)])
        column = groups.take(pa.array(self._groups))
        columns = {"group": column}
        if self._kind == "priority":
            columns["priority"] = pa.array(np.arange(len(column)) * 7 % LEVELS, pa.uint16())
        filled = self._system.fill(self._topic, self._load, self._plan.seconds, **columns)
        seen: list[pa.Array] = []
        drained: Measured = self._system.drain(
            self._topic, filled.rows, self._plan.seconds, look=_looker(seen)
        )
        rates = {
            f"enqueue{suffix}": filled.per_second,
            f"lease_ack{suffix}": drained.per_second,
        }
        if self._kind == "fair":
            rates["jain"] = self._jain(seen, filled.rows)
        return rates

    def _jain(self, seen: list[pa.Array], filled_rows: int) -> float:
        """Of the first deliveries, as long as every group had messages, whatever was sent."""
        sent = np.bincount(self._groups[:filled_rows])
        first = sent.size * max(1, int(sent.min()) // 2)
        names = pa.chunked_array(seen).slice(0, first).combine_chunks()
        counts = names.value_counts().field("counts").to_numpy()
        return jain(np.append(counts, np.zeros(sent.size - counts.size, dtype=np.int64)))


def _looker(seen: list[pa.Array]) -> Callable[[pa.RecordBatch], None]:
    def look(batch: pa.RecordBatch) -> None:
        seen.append(batch.column("group"))

    return look


def zipf_groups(rows: int, seed: int) -> Int64s:
    """The group of each message: group g has 1 / (g + 1) of what the first has, and a few more."""
    count = min(GROUPS_MAX, max(1, rows // (4 * ROWS_PER_GROUP_MIN)))
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, count + 1)
    some = np.tile(np.arange(count, dtype=np.int64), ROWS_PER_GROUP_MIN)
    rest = random.choice(count, rows - some.size, p=shares / shares.sum())
    groups: Int64s = np.concatenate([some, rest])
    random.shuffle(groups)
    return groups


def jain(counts: Int64s) -> float:
    """Jain's index of fairness.

    >>> jain(np.array([5, 5, 5])), jain(np.array([9, 0, 0])) < 0.34
    (1.0, True)
    """
    return float(counts.sum()) ** 2 / (counts.size * float((counts.astype(np.float64) ** 2).sum()))
