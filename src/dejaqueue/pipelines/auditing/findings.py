"""What an audit found, as numbers that fit into memory.

Room: pipelines. Values; no Spark.
Holds: faults are counted one by one; only the first of them are kept as examples.
See: audit.py, which collects them; page.py, which shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EXAMPLES_MAX = 100


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found.

    Attributes:
        faults: how many of each, by the names of faults.FAULTS.
        gaps: places where history has nothing; `missed` changes at least.
        figures: rows of figures.figures_of, by topic and hour, groups together.
        groups: the same by topic and group, hours together; those with most faults first.
        spread: (bucket, count) of figures.spread_of.
        examples: rows of faults.FAULT_COLUMNS.
        quantiles: lateness over all, ms, by the names of figures.QUANTILES; empty = none.
    """

    messages: int
    deliveries: int
    unknown_begin: int
    faults: Mapping[str, int]
    gaps: int
    missed: int
    from_ms: int
    to_ms: int
    quantiles: Mapping[str, int] = field(default_factory=dict)
    max_ms: int = 0
    figures: Sequence[Mapping[str, Any]] = ()
    groups: Sequence[Mapping[str, Any]] = ()
    spread: Sequence[tuple[int, int]] = ()
    examples: Sequence[Mapping[str, Any]] = ()
    gap_rows: Sequence[Mapping[str, Any]] = ()

    @property
    def fault_count(self) -> int:
        """All faults together."""
        return sum(self.faults.values())

    @property
    def is_whole(self) -> bool:
        """True if history has no gap."""
        return not self.gaps

    @property
    def is_good(self) -> bool:
        """True if there is no fault and nothing that could not be judged."""
        return self.is_whole and not self.fault_count

    @property
    def headline(self) -> str:
        """What came of it, in one sentence."""
        if self.fault_count:
            named = [f"{count:,} {name}" for name, count in self.faults.items() if count]
            words = f"{self.messages:,} messages: {', '.join(named)}"
        else:
            words = f"{self.messages:,} messages, none lost, early, twice or late"
        return words if self.is_whole else f"{words}; the history has {self.gaps:,} gaps"
