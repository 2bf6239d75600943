"""The command line: help, errors in one line with their exit codes, nothing loaded without need."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys

import click
import pytest

from dejaqueue import errors
from dejaqueue.cli import main as module
from dejaqueue.cli.main import COMMANDS, main
from dejaqueue.errors import BadRequest, Locked, Refused, TopicUnknown, Unavailable
from dejaqueue.version import __version__
from tests.cli.conftest import invoke


def test_help_names_every_command_in_order() -> None:
    found = invoke("--help")
    assert found.exit_code == 0
    places = [found.stdout.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert "Exit status" in found.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_or_options(name: str) -> None:
    found = invoke(name, "--help")
    assert found.exit_code == 0
    assert "--" in found.stdout


def test_version() -> None:
    assert invoke("--version").stdout == f"dejaq, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fly"], "error: No such command 'fly'. (see `main --help`)\n"),
        (["stat"], "error: No such command 'stat'. Did you mean 'stats'?"),
        (["--stat"], "error: No such option '--stat'"),
        (["send"], "error: Missing argument 'TOPIC'. (see `main send --help`)\n"),
        (["stats", "--colour"], "error: No such option '--colour'"),
        (["demo", "--seconds", "0"], "error: Invalid value for '--seconds'"),
        (["topic", "create", "a", "--lease", "soon"], "error: Invalid value for '--lease': a time"),
    ],
)
def test_wrong_call_is_one_line_and_status_2(arguments: list[str], text: str) -> None:
    found = invoke(*arguments)
    assert found.exit_code == 2
    assert found.stderr.startswith(text) or found.stderr.replace(" (see", ". (see") == text
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (BadRequest("due", "from 0", -1), 2, "due: from 0, got: -1"),
        (TopicUnknown("x"), 2, "dejaq topic create"),
        (Refused("no"), 3, "no"),
        (Unavailable("out of\n reach"), 4, "out of reach (is a broker there?"),
        (Locked("in use"), 6, "give --data another one"),
    ],
)
def test_error_is_one_line_with_its_exit_code(
    error: errors.DejaQError, status: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def broken() -> None:
        raise error

    monkeypatch.setattr(module, "broken", broken, raising=False)
    monkeypatch.setitem(COMMANDS, "broken", "dejaqueue.cli.main:broken")
    found = invoke("broken")
    assert found.exit_code == status
    assert found.stderr.startswith("error: ")
    assert text in found.stderr
    assert found.stderr.count("\n") == 1


def test_who_starts_a_broker_is_not_told_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def serve() -> None:
        raise Unavailable("the coordinator is away")

    monkeypatch.setattr(module, "serve", serve, raising=False)
    monkeypatch.setitem(COMMANDS, "serve", "dejaqueue.cli.main:serve")
    assert invoke("serve").stderr == "error: the coordinator is away\n"


def test_bug_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "broken", broken, raising=False)
    monkeypatch.setitem(COMMANDS, "broken", "dejaqueue.cli.main:broken")
    with pytest.raises(ZeroDivisionError):
        main(["broken"])


def test_interrupt_ends_with_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "broken", broken, raising=False)
    monkeypatch.setitem(COMMANDS, "broken", "dejaqueue.cli.main:broken")
    assert invoke("broken").exit_code == 130


def test_help_loads_neither_arrow_nor_broker__and_is_quick() -> None:
    text = (
        "import sys\n"
        "sys.argv = ['dejaq', '--help']\n"
        "from dejaqueue.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    heavy = {'pyarrow', 'numpy', 'pandas', 'rich', 'pydantic', 'dejaqueue.broker'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    least = math.inf
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert found.stderr == "[]\n"
    # 0.16 s of a processor on two loaded cores, as much again with pyarrow.
    assert least < 0.6


def test_module_is_the_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "dejaqueue", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert __version__ in found.stdout
