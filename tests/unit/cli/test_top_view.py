"""What `dejaq top` draws: it fits, the worst stands first, topics are in the order asked for."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dejaqueue.cli.top_view import ORDERS, Frame, TopicLine, draw, in_order
from dejaqueue.console.problems import Problem
from dejaqueue.console.rows import SHOWN

NOW_MS = 1_800_000_000_000
NONE = dict.fromkeys((*SHOWN, "consumers", "credit"), 0) | {"next_due_ms": -1}
LATE = NONE | {"ready": 7, "scheduled": 7_654_321, "next_due_ms": NOW_MS - 90_000}
LINES = [
    TopicLine("a-name-that-is-much-too-long-for-a-narrow-terminal", NONE, "fair"),
    TopicLine("late", LATE, "timeline", paused=True),
    TopicLine("busy", NONE | {"next_due_ms": NOW_MS + 60_000}, "cron", False, 5, 123, (1, 2, 3)),
    *(TopicLine(f"t{n}", NONE | {"scheduled": n}) for n in range(60)),
]
FRAME = Frame("dejaq://x", NOW_MS, LINES, [Problem(3, "Late by 1 min", "Add some.", "late")] * 9)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50), (60, 12)])
def test_it_fits(columns: int, rows: int) -> None:
    out = io.StringIO()
    frame = replace(FRAME, silent=("b",), said="the broker does not answer", standby="behind")
    Console(file=out, width=columns).print(draw(frame, columns, rows))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) < rows
    assert lines[0].startswith("dejaq top dejaq://x 08:00:00 · 63 topics · 7.7M scheduled")
    assert "late: Late by 1 min." in out.getvalue()
    assert f"{9 - rows // 5} more are wrong" in out.getvalue() or rows == 50
    assert ("7,654,321" in out.getvalue()) == (columns == 200)
    assert "more" in lines[-1]


def test_subscriptions_stand_behind_their_topic() -> None:
    lines = [
        TopicLine("a", NONE), TopicLine("a@slow", NONE), TopicLine("a@fast", NONE, rate_out=9),
        TopicLine("b", NONE, rate_out=5), TopicLine("b@x", LATE, "arrival"),
    ]  # fmt: skip
    frame = Frame("dejaq://x", NOW_MS, lines, unasked=3)
    assert [one.name for one in in_order(frame)] == ["b", "b@x", "a", "a@fast", "a@slow"]
    out = io.StringIO()
    Console(file=out, width=80).print(draw(frame, 80, 24))
    shown = out.getvalue()
    assert "2 topics · 0 scheduled" in shown
    assert "  @fast" in shown
    assert "3 subscriptions not asked for" in shown


def test_topics_stand_in_the_order_asked_for() -> None:
    first = {order: in_order(replace(FRAME, order=order))[0].name for order in ORDERS.values()}
    assert first == {
        "busy": "busy", "name": LINES[0].name, "scheduled": "late", "late": "late",
    }  # fmt: skip


def test_a_standby_is_said_to_be_one() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(
        draw(Frame("dejaq://x", NOW_MS, standby="far behind"), 80, 24)
    )
    assert "far behind" in out.getvalue()
    assert "nothing is late" not in out.getvalue()
