"""Progress: lines on standard error, with how long each step took; a thread that ends."""

from __future__ import annotations

import threading

import pytest

from dejaqueue.pipelines.frame.progress import DRAW_EVERY_MS, LINE_EVERY_MS, Lines, Quiet
from dejaqueue.testing.virtual_clock import VirtualClock


def test_a_step_says_how_long_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    progress = Lines(clock, moves=False)
    with progress, progress.step("counting"):
        clock.advance(ms=1_500)
    progress.say("done")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["counting: 1.5 s", "done"]
    assert "pipeline-progress" not in [thread.name for thread in threading.enumerate()]


def test_a_step_that_fails_ends_too() -> None:
    progress = Lines(VirtualClock(), moves=True)
    with pytest.raises(ValueError, match="planted"), progress.step("counting"):
        raise ValueError("planted")
    assert "pipeline-progress" not in [thread.name for thread in threading.enumerate()]


def test_parts_that_spark_has_done_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    class Stage:
        numTasks, numCompletedTasks = 1_200, 300  # noqa: N815 - Spark's names

    class Tracker:
        def getActiveStageIds(self) -> list[int]:
            return [1, 2]

        def getStageInfo(self, number: int) -> Stage | None:
            return Stage() if number == 1 else None

    class Context:
        def statusTracker(self) -> Tracker:
            return Tracker()

    class Spark:
        _jsparkSession, sparkContext = None, Context()  # noqa: N815

    progress = Lines(VirtualClock(), moves=False)
    progress.watch(Spark())  # type: ignore[arg-type]
    assert progress._parts() == " 300 of 1,200 parts"
    assert DRAW_EVERY_MS < LINE_EVERY_MS


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Quiet() as quiet, quiet.step("x"):
        quiet.say("y")
    assert capsys.readouterr() == ("", "")
