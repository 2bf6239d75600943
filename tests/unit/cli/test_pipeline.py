"""`dejaq pipeline`: commands are found where the pipelines are. What they do: tests/spark."""

from __future__ import annotations

import pytest

from dejaqueue import pipelines
from dejaqueue.cli.pipeline import pipeline
from tests.cli.conftest import invoke


def test_every_pipeline_is_a_command_and_nothing_else_is() -> None:
    shown = invoke("pipeline", "--help").stdout
    listed = shown.partition("Commands:")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.strip().splitlines()] == pipelines.names()
    assert "frame" not in pipelines.names()


@pytest.mark.parametrize("name", pipelines.names())
def test_a_command_has_the_name_and_the_options_of_its_pipeline(name: str) -> None:
    found = invoke("pipeline", name, "--help")
    assert found.exit_code == 0
    assert "--url" in found.stdout
    assert pipelines.find(name).name == name


@pytest.mark.parametrize("name", ["fly", "frame", "load"])
def test_what_is_no_pipeline_is_no_command(name: str) -> None:
    assert pipeline.commands == {}
    found = invoke("pipeline", name)
    assert found.exit_code == 2
    assert f"No such command '{name}'" in found.stderr
