"""Results: rows as they are kept in `bench/results/latest.json`, and how runs are merged there.

Room: bench. Reads and writes two JSON files.
Holds: a row has exactly FIELDS; a question that is run again replaces its own rows and no others.
See: page.py, which makes docs/benchmarks.md of them.

`latest.json` is a list of rows. `runs.json` beside it keeps, by question, where and when it was
run, and the spread over the rounds of every figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FIELDS = ("question", "system", "case", "value", "unit", "ratio", "ratio_to")
QUESTIONS = (
    "throughput",
    "kinds",
    "sizes",
    "lateness",
    "pollers",
    "hot_instant",
    "spike",
    "beside",
    "fair",
    "subscriptions",
    "http",
    "doq",
    "scale",
    "topics",
    "spark",
    "spark_lateness",
    "journals",
    "bytes",
    "cluster",
    "many",
    "processes",
    "workers",
    "peers",
    "sqs",
    "console",
    "scaling",
    "starting",
    "parts",
)
"""All questions, in the order of the page."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        question: one of QUESTIONS.
        system: `dejaq`, `redis`, `beanstalkd`, or `spark` where nothing else is measured.
        case: what was done.
        value: the median over the rounds, in `unit`.
        ratio: `value` over that of `ratio_to`, None if there is nothing to compare with.
        ratio_to: the system, or the case of the same system, that `ratio` compares with.
    """

    question: str
    system: str
    case: str
    value: float
    unit: str
    ratio: float | None = None
    ratio_to: str | None = None


@dataclass(slots=True)
class Outcome:
    """What answers a question.

    Attributes:
        rows: the figures.
        spreads: by "system/case", the figure of each round.
        series: curves for the plot, by name; their meaning is the question's.
        left_out: what was not measured, each with its reason, as sentences.
        versions: of what was measured, beside the systems of registry.py.
    """

    rows: list[Row] = field(default_factory=list)
    spreads: dict[str, dict[str, Any]] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def check_rows(rows: Iterable[dict[str, Any]]) -> None:
    """Raise ValueError, naming the row and the field, if a row has not the agreed shape."""
    seen: set[tuple[str, str, str]] = set()
    for index, row in enumerate(rows):
        if set(row) != set(FIELDS):
            raise ValueError(f"row {index}: fields must be {', '.join(FIELDS)}, got: {sorted(row)}")
        for name in ("question", "system", "case", "unit"):
            if not isinstance(row[name], str) or not row[name]:
                raise ValueError(f"row {index}: {name} must be a text, got: {row[name]!r}")
        if not _is_number(row["value"]):
            raise ValueError(f"row {index}: value must be a number, got: {row['value']!r}")
        if (row["ratio"] is None) != (row["ratio_to"] is None):
            raise ValueError(f"row {index}: ratio and ratio_to must both be there or neither")
        if row["ratio"] is not None and not _is_number(row["ratio"]):
            raise ValueError(f"row {index}: ratio must be a number, got: {row['ratio']!r}")
        names = (row["question"], row["system"], row["case"])
        if names in seen:
            raise ValueError(f"row {index}: {' / '.join(names)} is there twice")
        seen.add(names)


def merge(old: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of both, without old rows of questions that the new ones answer, in page order."""
    fresh = list(new)
    answered = {row["question"] for row in fresh}
    merged = [row for row in old if row["question"] not in answered] + fresh
    place = {question: index for index, question in enumerate(QUESTIONS)}
    return sorted(merged, key=lambda row: place.get(row["question"], len(place)))


def load(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows and the runs kept in a folder; both empty if there are none."""
    rows_path, runs_path = folder / "latest.json", folder / "runs.json"
    rows = json.loads(rows_path.read_text()) if rows_path.exists() else []
    runs = json.loads(runs_path.read_text()) if runs_path.exists() else {}
    return rows, runs


def store(folder: Path, question: str, outcome: Outcome, run: dict[str, Any]) -> None:
    """Merge an outcome into the folder's two files; nothing is written if it has no rows."""
    fresh = [asdict(row) for row in outcome.rows]
    if not fresh:
        return
    rows, runs = load(folder)
    merged = merge(rows, fresh)
    check_rows(merged)
    runs[question] = run | {"spreads": outcome.spreads, "left_out": outcome.left_out}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.json").write_text(json.dumps(merged, indent=1) + "\n")
    (folder / "runs.json").write_text(json.dumps(runs, indent=1, sort_keys=True) + "\n")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
