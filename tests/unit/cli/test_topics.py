"""`dejaq topic`: what is made, shown, changed and deleted.

Not covered: each setting's option (test_topic_options.py); purge (test_changes.py).
"""

from __future__ import annotations

import json

from tests.cli.conftest import Run


def test_a_topic_is_made_with_what_was_given__listed_and_shown(run: Run) -> None:
    made = json.loads(run("topic", "create", "t", "--partitions", "2", "--json").stdout)
    assert (made["name"], made["partitions"]) == ("t", 2)
    assert json.loads(run("topic", "show", "t", "--json").stdout) == made
    listed = [json.loads(line) for line in run("topic", "list", "--json").stdout.splitlines()]
    assert listed == [made]


def test_making_a_topic_twice_is_an_error_unless_one_says(run: Run) -> None:
    run("topic", "create", "t")
    assert run("topic", "create", "t").exit_code != 0
    assert run("topic", "create", "t", "--exist-ok").exit_code == 0


def test_only_what_is_given_is_changed(run: Run) -> None:
    before = json.loads(run("topic", "create", "t", "--json").stdout)
    altered = json.loads(run("topic", "alter", "t", "--lease", "1m", "--json").stdout)
    assert altered == before | {"lease_ms": 60_000}
    found = run("topic", "alter", "t")
    assert (found.exit_code, "nothing to change" in found.stderr) == (2, True)


def test_deleting_asks_first(run: Run) -> None:
    run("topic", "create", "t")
    assert run("topic", "delete", "t", stdin=b"n\n").exit_code != 0
    assert run("topic", "show", "t").exit_code == 0
    assert run("topic", "delete", "t", "--yes").exit_code == 0
    assert run("topic", "show", "t").exit_code == 2


def test_a_paused_topic_hands_out_nothing_until_it_is_resumed(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--text", "a")
    run("topic", "pause", "t")
    assert run("consume", "t", "--timeout", "100ms").stdout_bytes == b""
    run("topic", "resume", "t")
    assert run("consume", "t", "--max", "1", "--timeout", "10s").stdout_bytes == b"a\n"


def test_assignments_are_one_row_a_partition(run: Run) -> None:
    run("topic", "create", "t", "--partitions", "2", "--assignment", "exclusive")
    found = run("topic", "assignments", "t", "--json")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [row["partition"] for row in rows] == [0, 1]
