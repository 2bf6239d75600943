"""Every setting has an option, with a text."""

from __future__ import annotations

from dataclasses import fields

import click
from click.testing import CliRunner

from dejaqueue.cli.topic_options import flag_of, given, options
from dejaqueue.model import CHANGEABLE, Topic


def flags(*, creating: bool) -> dict[str, click.Option]:
    @click.command()
    @options(creating=creating)
    def command(**_settings: object) -> None: ...

    return {str(found.name): found for found in command.params if isinstance(found, click.Option)}


def test_all_settings_have_an_option_with_a_text() -> None:
    found = flags(creating=True)
    assert set(found) == {setting.name for setting in fields(Topic)} - {"name", "subscriptions"}
    assert all(option.help for option in found.values())
    assert set(flags(creating=False)) == set(CHANGEABLE) - {"subscriptions"}


def test_the_names_of_options() -> None:
    assert [flag_of(name) for name in ("max_delay_ms", "on_duplicate", "max_payload_bytes")] == [
        "--max-delay",
        "--on-duplicate",
        "--max-payload",
    ]


def test_what_is_not_given_is_left_out() -> None:
    @click.command()
    @options(creating=True)
    def command(**settings: object) -> None:
        print(given(settings))

    assert CliRunner().invoke(command, []).output == "{}\n"
    output = CliRunner().invoke(command, ["--weight", "a=2", "--lease", "1s"]).output
    assert output == "{'lease_ms': 1000, 'weights': {'a': 2}}\n"
    output = CliRunner().invoke(command, ["--label", "owner=the shop"]).output
    assert output == "{'labels': {'owner': 'the shop'}}\n"
    assert CliRunner().invoke(command, ["--label", "owner"]).exit_code == 2
