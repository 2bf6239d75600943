"""The page of an audit: each figure in its hour, nothing from outside unescaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dejaqueue.pipelines.auditing.faults import FAULTS
from dejaqueue.pipelines.auditing.figures import COUNTED, HOUR_MS, QUANTILES
from dejaqueue.pipelines.auditing.findings import Findings
from dejaqueue.pipelines.auditing.page import by_hour, page_of, write_report

BEGIN_MS = 480_000 * HOUR_MS


def row(hour: int, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys((*COUNTED, *FAULTS), 0)
    row |= dict.fromkeys((*QUANTILES, "max_ms"))
    row |= {"topic": "mail", "group": "", "hour_ms": BEGIN_MS + hour * HOUR_MS}
    return row | more


def findings(**more: Any) -> Findings:
    values: dict[str, Any] = {
        "messages": 7, "deliveries": 7, "unknown_begin": 0, "gaps": 0, "missed": 0,
        "faults": dict.fromkeys(FAULTS, 0) | {"late": 1},
        "from_ms": BEGIN_MS, "to_ms": BEGIN_MS + HOUR_MS,
        "quantiles": dict.fromkeys(QUANTILES, 12), "max_ms": 40,
    }  # fmt: skip
    return Findings(**values | more)


def test_figures_of_topics_are_summed_and_the_highest_lateness_is_shown() -> None:
    rows = [row(0, late=2, max_ms=5), row(0, late=3, max_ms=9), row(2, late=1)]
    assert by_hour(rows, "late", BEGIN_MS, 3).tolist() == [5, 0, 1]
    highest = by_hour(rows, "max_ms", BEGIN_MS, 3, highest=True)
    assert highest[0] == 9
    assert np.isnan(highest[1:]).all()
    assert by_hour(rows, "late", BEGIN_MS + HOUR_MS, 1).tolist() == [0]


def test_the_page_shows_faults_groups_and_gaps(tmp_path: Path) -> None:
    example = {
        "fault": "late", "topic": "mail", "partition": 0, "id": 4711, "key": "<script>",
        "group": None, "at_ms": BEGIN_MS, "detail": "4000 ms after it was ready",
    }  # fmt: skip
    gap = {"topic": "mail", "partition": 1, "at_ms": BEGIN_MS, "missed": None, "reason": "off"}
    found = findings(
        figures=[row(0, enqueued=5, late=1, p99_ms=40), row(1, acked=2)],
        groups=[row(0, late=1)],
        spread=[(0, 5), (9, 2)],
        examples=[example],
        gaps=1,
        gap_rows=[gap],
    )
    path = tmp_path / "deep" / "audit.html"
    write_report(path, found, "History of mail.", {"messages": 7})
    page = path.read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<svg") == 4
    for text in ("4711", "1 late", "no group", "Gaps", "4000 ms after it was ready"):
        assert text in page
    assert "http" not in page.replace("http-equiv", "")


def test_an_empty_history_has_a_page_too() -> None:
    none = findings(messages=0, deliveries=0, faults=dict.fromkeys(FAULTS, 0), quantiles={})
    page = page_of(none, "", {}).html()
    assert "0 messages, none lost" in page
    assert "<svg" not in page
