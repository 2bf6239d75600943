"""`dejaq move`, `cancel`, `topic purge`: which calls make sense, and what they say of each message.

Not covered: which messages filters select (tests/cli/test_browsing.py).
"""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run, invoke

DUE = "2100-01-01T00:00:00Z"


def fill(run: Run) -> None:
    run("topic", "create", "t")
    for name in ("a", "b"):
        run("send", "t", "--text", name, "--key", name, "--due", DUE)


def keys(run: Run) -> list[str]:
    return [json.loads(line)["key"] for line in run("peek", "t", "--json").stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("move t --delay 1h", "name the messages"),
        ("move t --key a --id 5 --delay 1h", "name the messages"),
        ("move t --key a --group g --delay 1h", "name the messages"),
        ("move t --key a --delay 1h --due 0", "one of them"),
        ("move t --key a", "say the new time"),
        ("move t --group g --by 1h --if-due 0", "named by --key or --id"),
        ("cancel t --group g --if-due 0", "named by --key or --id"),
        ("move t --key a --delay 1h --dry-run", "selected by a filter"),
        ("cancel t", "name the messages"),
        ("cancel t --key a --dry-run", "selected by a filter"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_before_a_broker_is_asked(
    arguments: str, text: str
) -> None:
    found = invoke(*arguments.split(), url="dejaq://127.0.0.1:1")
    assert found.exit_code == 2
    assert text in found.stderr


def test_moved_messages_are_told_one_by_one__status_3_if_one_was_not(run: Run) -> None:
    fill(run)
    found = run("move", "t", "--key", "a", "--key", "none", "--due", DUE, "--json")
    assert [json.loads(line)["status"] for line in found.stdout.splitlines()] == ["OK", "NOT_FOUND"]
    assert found.exit_code == 3
    assert run("move", "t", "--key", "a", "--set-priority", "1").exit_code == 0


def test_a_shift_and_a_condition__who_was_moved_meanwhile_is_told(run: Run) -> None:
    fill(run)
    assert run("move", "t", "--key", "a", "--by", "-1h", "--if-due", DUE).exit_code == 0
    found = run("move", "t", "--key", "a", "--key", "b", "--by", "1h", "--if-due", DUE, "--json")
    assert [json.loads(line)["status"] for line in found.stdout.splitlines()] == ["CHANGED", "OK"]
    assert found.exit_code == 3
    found = run("cancel", "t", "--key", "a", "--if-due", DUE, "--json")
    assert json.loads(found.stdout)["status"] == "CHANGED"
    dues = [json.loads(line)["due"] for line in run("peek", "t", "--json").stdout.splitlines()]
    assert dues == ["2099-12-31T23:00:00.000Z", "2100-01-01T01:00:00.000Z"]


def test_a_filter_moves_and_says_how_many(run: Run) -> None:
    fill(run)
    arguments = ("move", "t", "--state", "scheduled", "--by", "-1h", "--json")
    assert json.loads(run(*arguments, "--dry-run").stdout) == {"would_move": 2}
    assert json.loads(run(*arguments).stdout) == {"moved": 2}
    dues = [json.loads(line)["due"] for line in run("peek", "t", "--json").stdout.splitlines()]
    assert dues == ["2099-12-31T23:00:00.000Z"] * 2


def test_cancelled_messages_are_gone(run: Run) -> None:
    fill(run)
    assert run("cancel", "t", "--key", "a").exit_code == 0
    assert keys(run) == ["b"]
    assert json.loads(run("cancel", "t", "--state", "scheduled", "--json").stdout) == {
        "cancelled": 1
    }
    assert keys(run) == []


def test_purging_asks_first(run: Run) -> None:
    fill(run)
    assert run("topic", "purge", "t", stdin=b"n\n").exit_code != 0
    assert keys(run) == ["a", "b"]
    assert json.loads(run("topic", "purge", "t", "--yes", "--json").stdout) == {"cancelled": 2}
    assert keys(run) == []
