"""Command lines of pipelines: made from options; figures out, exit status, errors in one line."""

from __future__ import annotations

import json
import sys
from typing import Literal

import click
import pytest
from click.testing import CliRunner, Result
from pydantic import Field

from dejaqueue import pipelines
from dejaqueue.errors import Refused
from dejaqueue.pipelines.frame import (
    Outcome,
    Pipeline,
    PipelineOptions,
    Run,
    Span,
    main,
    make_command,
)


class Options(PipelineOptions):
    name: str = Field(description="A name.")
    wait_ms: Span = Field(default="5m", validate_default=True, description="How long.")
    part: tuple[str, ...] = Field(default=(), description="Some.")
    mode: Literal["fine", "bad", "refused", "spark"] = Field(default="fine", description="How.")
    loud: bool = Field(default=False, description="Whether.")


class AnalysisException(Exception):
    """As Spark raises it, by its name and its place."""

    __module__ = "pyspark.errors"


def run(options: Options, run: Run) -> Outcome:
    """Do what is asked.

    And more.
    """
    if options.mode == "refused":
        raise Refused("no")
    if options.mode == "spark":
        raise AnalysisException("[PATH_NOT_FOUND] There is no such path.\nand much more")
    figures = {"name": options.name, "wait": options.wait_ms, "parts": list(options.part)}
    figures |= {"loud": options.loud, "share": 0.5, "hot": [{"at": 1, "due": 2}], "none": None}
    figures["parts"] = "+".join(options.part)
    return Outcome(figures, is_good=options.mode != "bad")


PIPELINE = Pipeline(
    "sample", Options, run, epilog="Example: …", needs=lambda o: {"spark.x": o.name}
)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(make_command(PIPELINE), list(arguments), standalone_mode=False)


def test_figures_are_lines_or_one_object() -> None:
    given = ["--name", "n", "--wait", "2s", "--part", "a", "--part", "b", "--loud"]
    assert call(*given).stdout.splitlines() == [
        "name n", "wait 2000", "parts a+b", "loud True", "share 0.500", "hot_1 1 2", "none -",
    ]  # fmt: skip
    assert json.loads(call(*given, "--json").stdout)["hot"] == [{"at": 1, "due": 2}]


def test_the_exit_status_says_what_came_of_it() -> None:
    assert call("--name", "n").return_value == 0
    assert call("--name", "n", "--mode", "bad").return_value == 1


def test_the_help_has_every_option_with_its_default() -> None:
    text = " ".join(call("--help").stdout.split())
    for word in ("--name TEXT", "--wait TIME", "[default: 5m]", "fine|bad", "--loud", "--master"):
        assert word in text
    assert "Do what is asked. And more." in text
    assert "env var: DEJAQ_URL; default: dejaq://localhost:7464" in text


def test_sparks_errors_are_one_line__or_whole() -> None:
    found = call("--name", "n", "--mode", "spark").exception
    assert str(found) == "Spark: [PATH_NOT_FOUND] There is no such path."
    assert isinstance(
        call("--name", "n", "--mode", "spark", "--debug").exception, AnalysisException
    )


def test_settings_of_spark_are_checked() -> None:
    assert "--conf: NAME=VALUE" in str(call("--name", "n", "--conf", "x").exception)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--name", "n"], 0, ""),
        (["--name", "n", "--mode", "bad"], 1, ""),
        (["--name", "n", "--wait", "x"], 2, "error: --wait: a time is like"),
        (["--nam"], 2, "error: No such option"),
        ([], 2, "error: Missing option '--name'."),
        (["--name", "n", "--mode", "refused"], 3, "error: no"),
        (["--name", "n", "--mode", "spark"], 2, "error: Spark: [PATH_NOT_FOUND]"),
    ],
)
def test_a_program_of_its_own_ends_with_the_status_of_dejaq(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["sample", *arguments])
    with pytest.raises(SystemExit) as ended:
        main(PIPELINE)
    assert ended.value.code == status
    errors = capsys.readouterr().err
    assert errors.startswith(said)
    assert len(errors.splitlines()) <= 1


@pytest.mark.parametrize("name", pipelines.names())
def test_every_pipeline_has_a_command_of_its_name(name: str) -> None:
    found = pipelines.find(name)
    assert found.name == name
    assert found.run.__doc__
    assert f"dejaq pipeline {name}" in found.epilog
    command = make_command(found)
    assert len(command.get_short_help_str(200)) > 20
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert [param.name for param in options if not param.help] == []


def test_there_are_pipelines() -> None:
    assert {"campaign", "forecast"} <= set(pipelines.names())
