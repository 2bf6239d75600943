"""Options gathered into records. What a command makes of them: test_send.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dejaqueue.cli.option_records import ColumnOptions, MessageOptions, with_records


@dataclass(frozen=True)
class Place:
    town: str | None
    street: str | None


@dataclass(frozen=True)
class Person:
    name: str | None


def given(**options: Any) -> dict[str, Any]:
    """What a command gets that takes two records and an option of its own."""
    found: dict[str, Any] = {}

    @with_records(place=Place, person=Person)
    def command(**arguments: Any) -> int:
        """Help of the command."""
        found.update(arguments)
        return 3

    assert command(**options) == 3
    assert command.__doc__ == "Help of the command."
    return found


def test_options_go_into_the_record_that_has_a_field_of_their_name__others_stay() -> None:
    assert given(town="t", name="n", street=None, loud=True) == {
        "place": Place("t", None),
        "person": Person("n"),
        "loud": True,
    }


def test_a_record_of_which_an_option_lacks_is_a_mistake_of_the_command() -> None:
    with pytest.raises(KeyError, match="street"):
        given(town="t", name="n")


@pytest.mark.parametrize("kind", [MessageOptions, ColumnOptions])
def test_a_command_of_click_takes_them_with_all_their_options(kind: type) -> None:
    names = list(kind.__annotations__)
    got: list[Any] = []

    @with_records(record=kind)
    def command(*, record: Any, more: str | None) -> None:
        got.append((record, more))

    whole: Any = command
    for name in [*names, "more"]:
        whole = click.option(f"--{name.replace('_', '-')}")(whole)
    runner = CliRunner()
    main = click.command()(whole)
    words = [f"--{names[1].replace('_', '-')}", "7", "--more", "m"]
    assert runner.invoke(main, words, catch_exceptions=False).exit_code == 0
    assert got == [(kind(**{name: "7" if name == names[1] else None for name in names}), "m")]
