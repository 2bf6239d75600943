"""Progress: lines now and then without a terminal, bars with one, neither too often."""

from __future__ import annotations

import pytest

from dejaqueue.cli.demo.progress import Bars, Lines, make_progress
from dejaqueue.testing.virtual_clock import VirtualClock


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(make_progress(VirtualClock()), Lines)
    clock = VirtualClock()
    with Lines(clock) as lines:
        lines.show({"delivered": (1, 2_000)})
        clock.advance(ms=5_000)
        lines.show({"delivered": (1_500, 2_000), "clock": (5, 10)})
        lines.show({"delivered": (1_600, 2_000)})
    assert capsys.readouterr().err == "delivered 1,500 of 2,000, clock 5 of 10\n"


def test_bars_stop_at_their_total(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars(VirtualClock()) as bars:
        bars.say("[hello]")
        bars.show({"delivered": (7, 5)})
    shown = capsys.readouterr().err
    assert "[hello]" in shown
    assert "5/5" in shown
