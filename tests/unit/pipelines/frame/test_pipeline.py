"""What a pipeline runs in: Spark when it is first asked for, and no longer than the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from dejaqueue.pipelines.frame import pipeline as module
from dejaqueue.pipelines.frame.pipeline import Outcome, Run
from dejaqueue.pipelines.frame.progress import Quiet
from dejaqueue.pipelines.frame.session import Session


class Log(Quiet):
    """Progress, and everything that happened, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __enter__(self) -> Log:
        self.lines.append("progress begins")
        return self

    def __exit__(self, *error: object) -> None:
        self.lines.append("progress ends")

    def say(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        self.lines.append(f"{text} …")
        yield
        self.lines.append(f"{text}: done")

    def watch(self, spark: Any) -> None:
        self.lines.append(f"watches {spark}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()

    @contextmanager
    def session(asked: Session, given: Any, progress: Any) -> Iterator[Any]:
        assert progress is log
        log.lines.append(f"{given or asked.name} starts")
        yield given or asked.name
        log.lines.append("it stops")

    monkeypatch.setattr(module, "spark_session", session)
    return log


def test_who_needs_no_spark_does_not_wait_for_it(log: Log) -> None:
    with Run(progress=log) as run:
        run.say("words")
    assert log.lines == ["progress begins", "words", "progress ends"]


def test_spark_starts_once__is_watched__and_stops_before_progress_ends(log: Log) -> None:
    with Run(session=Session("mine"), progress=log) as run:
        assert run.spark is run.spark
        with run.step("counting"):
            pass
    assert log.lines == [
        *("progress begins", "mine starts", "watches mine"),
        *("counting …", "counting: done", "it stops", "progress ends"),
    ]


def test_spark_stops_where_a_pipeline_fails(log: Log) -> None:
    run = Run(progress=log)
    with pytest.raises(ValueError, match="planted"), run:
        assert run.spark
        raise ValueError("planted")
    assert log.lines[-2:] == ["it stops", "progress ends"]


def test_a_session_that_is_given_is_the_one_that_is_used(log: Log) -> None:
    with Run(cast(Any, "theirs"), progress=log) as run:
        assert cast(Any, run.spark) == "theirs"


def test_an_outcome_is_good_unless_it_is_said_to_be_bad() -> None:
    assert Outcome().is_good
    assert Outcome().figures == {}
