"""The page: well formed, self-contained, with every figure on it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from dejaqueue.cli.demo.plan import make_plan
from dejaqueue.cli.demo.report import Run, write_page
from dejaqueue.cli.demo.verdict import Arrivals, Verdict
from tests.cli.small_flights import small_flights

GOOD = Verdict(
    scheduled=5,
    moved=2,
    cancelled=1,
    delivered=4,
    lost=0,
    early=0,
    duplicate=0,
    redelivered=0,
    resurrected=0,
    wrong_due=0,
    wrong_payload=0,
    unknown=0,
    moved_too_late=0,
    cancelled_too_late=0,
    lateness_p50_ms=0.3,
    lateness_p99_ms=1.0,
    lateness_p999_ms=1.0,
    lateness_max_ms=1.0,
    messages_per_second=1234.5,
)
ARRIVALS = Arrivals(
    np.array([1_000_300, 2_500_300, 2_900_300, 11_001_000], dtype=np.int64),
    np.array([300, 300, 300, 1_000], dtype=np.int64),
)
NOTHING = Arrivals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def page(verdict: Verdict = GOOD, arrivals: Arrivals = ARRIVALS, killed_ms: int = -1) -> str:
    plan = make_plan(small_flights(), 10_000, notice_minutes=20, notice_ms_min=50)
    return write_page(
        Run("<2013>", plan, verdict, arrivals, 1_000, killed_ms, [("machine", "A & B")])
    )


class Checker(HTMLParser):
    """Complains about tags that are not closed in order."""

    EMPTY = frozenset({"meta", "line", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("arrivals", [ARRIVALS, NOTHING])
@pytest.mark.parametrize("killed_ms", [-1, 5_000])
def test_page_is_well_formed(arrivals: Arrivals, killed_ms: int) -> None:
    checker = Checker()
    checker.feed(page(arrivals=arrivals, killed_ms=killed_ms))
    checker.close()
    assert checker.open == []
    assert {"svg", "table", "style", "h1"} <= checker.seen


def test_page_needs_nothing_from_elsewhere() -> None:
    text = page()
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(|src=", text)
    assert "prefers-color-scheme: dark" in text


def test_every_figure_is_on_the_page() -> None:
    text = page()
    for name in GOOD.figures():
        assert f"<th>{name}</th>" in text
    assert "1,234.500" in text


def test_words_from_outside_are_escaped() -> None:
    text = page()
    assert "<2013>" not in text
    assert "&lt;2013&gt;" in text
    assert "A &amp; B" in text


def test_good_run_and_bad_run_say_so_on_top() -> None:
    assert "Every message came once" in page()
    assert "Something went wrong" in page(replace(GOOD, lost=1))


def test_kill_is_marked_on_the_timeline() -> None:
    assert "broker killed" in page(killed_ms=5_000)
    assert "broker killed" not in page()
