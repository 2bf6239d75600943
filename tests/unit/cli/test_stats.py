"""`dejaq stats`: whose figures are shown. What they count: tests/rules; that all are documented:
tests/docs."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def topics(run: Run) -> None:
    for name in ("t", "other"):
        run("topic", "create", name)
    run("send", "t", "--text", "a", "--delay", "1h")


def test_a_topic_is_shown_alone(run: Run) -> None:
    shown = json.loads(run("stats", "t", "--json").stdout)
    assert (shown["topic"], shown["scheduled"]) == ("t", 1)
    lines = run("stats", "t").stdout.splitlines()
    assert lines[:2] == ["topic t", "scheduled 1"]


def test_without_a_name_the_broker_is_shown_with_all_its_topics(run: Run) -> None:
    shown = json.loads(run("stats", "--json").stdout)
    assert {name: one["scheduled"] for name, one in shown["topics"].items()} == {"t": 1, "other": 0}
    assert shown["uptime_ms"] >= 0


def test_a_name_that_is_nearly_right_is_told(run: Run) -> None:
    found = run("stats", "othr")
    assert found.exit_code == 2
    assert "did you mean other?" in found.stderr
