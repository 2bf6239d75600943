"""The options that select messages: how they are given, and what of them travels.

Not covered: what brokers select (tests/cli/test_browsing.py).
"""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dejaqueue.cli.filters import STATES, WAITING_STATES, where_of, where_options


def given(*arguments: str, states: tuple[str, ...] = STATES) -> tuple[int, Any]:
    """Exit status of a command, and what its options selected."""

    @click.command()
    @where_options(*states)
    def look(**where: Any) -> None:
        click.echo(json.dumps(where_of(where)))

    found = CliRunner().invoke(look, arguments)
    return found.exit_code, json.loads(found.output) if found.exit_code == 0 else found.output


def test_without_options_nothing_is_selected_by() -> None:
    assert given() == (0, {})


def test_every_option_has_its_own_word() -> None:
    arguments = "--state leased --group g --tag a --tag b --all-tags c --not-tag d"
    more = "--from 2026-01-01T00:00:00Z --to 1767225600001 --priority-from 1 --priority-to 9"
    assert given(*arguments.split(), *more.split()) == (
        0,
        {
            "due_from": 1_767_225_600_000,
            "due_to": 1_767_225_600_001,
            "state": "leased",
            "group": "g",
            "tags_any": ["a", "b"],
            "tags_all": ["c"],
            "tags_none": ["d"],
            "priority_from": 1,
            "priority_to": 9,
        },
    )


def test_no_group_and_priority_0_are_something() -> None:
    assert given("--group", "", "--priority-to", "0") == (0, {"group": "", "priority_to": 0})


def test_a_command_names_only_states_that_it_can_use() -> None:
    status, text = given("--state", "leased", states=WAITING_STATES)
    assert status == 2
    assert "scheduled" in text


@pytest.mark.parametrize("arguments", [("--priority-to", "65536"), ("--from", "soon")])
def test_what_is_out_of_bounds_is_refused(arguments: tuple[str, ...]) -> None:
    assert given(*arguments)[0] == 2
