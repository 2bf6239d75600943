"""What DejaQ set out to reach, and whether the kept rows reach it.

Room: bench. Rows in, verdicts out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """One bound on one row of DejaQ.

    Attributes:
        work: what it is about, for readers.
        of: the field of the row that is bounded.
        bound: the number it must reach, or not exceed.
        unit: of the bound.
    """

    work: str
    question: str
    case: str
    of: Literal["value", "ratio"]
    sign: Literal["≥", "≤", "="]
    bound: float
    unit: str


TARGETS = (
    Target("enqueue, batches of 1,000, one producer", "throughput", "enqueue", "ratio", "≥", 3, "× redis"),
    Target("enqueue, batches of 1,000, one producer", "throughput", "enqueue", "value", "≥", 1_000_000, "messages/s"),
    Target("lease + ack, 1,000 at a time", "throughput", "lease_ack", "ratio", "≥", 4, "× redis"),
    Target("64 producers, one message per call", "throughput", "single", "ratio", "≥", 1, "× beanstalkd"),
    Target("lateness at 10,000 messages/s, p50", "lateness", "p50", "value", "≤", 0.5, "ms"),
    Target("lateness at 10,000 messages/s, p99", "lateness", "p99", "value", "≤", 3, "ms"),
    Target("lateness at 10,000 messages/s, early", "lateness", "early", "value", "=", 0, "messages"),
    Target("a million due in one millisecond, all acked", "hot_instant", "drained", "value", "≤", 3, "s"),
    Target("meanwhile another topic, p99", "hot_instant", "steady_p99", "value", "≤", 50, "ms"),
    Target("scheduled, memory of each", "scale", "memory_per_message", "value", "≤", 45, "bytes"),
    Target("scheduled, enqueue against that at 1 M", "scale", "enqueue", "ratio", "≥", 0.8, "×"),
    Target("scheduled, lease + ack against that at 1 M", "scale", "lease_ack", "ratio", "≥", 0.8, "×"),
    Target("scheduled, start from snapshot", "scale", "restart", "value", "≤", 30, "s"),
)  # fmt: skip

REACHED: dict[str, Callable[[float, float], bool]] = {
    "≥": lambda got, bound: got >= bound,
    "≤": lambda got, bound: got <= bound,
    "=": lambda got, bound: got == bound,
}


def verdicts(rows: list[dict[str, Any]]) -> list[tuple[Target, float | None, bool | None]]:
    """Each target with what was measured and whether that reaches it; None if not measured."""
    by_case = {(r["question"], r["case"]): r for r in rows if r["system"] == "dejaq"}
    found: list[tuple[Target, float | None, bool | None]] = []
    for target in TARGETS:
        got = by_case.get((target.question, target.case), {}).get(target.of)
        reached = None if got is None else REACHED[target.sign](got, target.bound)
        found.append((target, got, reached))
    return found
