"""`dejaq subscription`: what is made, shown, changed, consumed and deleted."""

from __future__ import annotations

import json

from tests.cli.conftest import Run


def test_a_subscription_is_made__listed__shown_and_changed(run: Run) -> None:
    run("topic", "create", "t")
    made = json.loads(
        run("subscription", "create", "t", "billing", "--lease", "1m", "--json").stdout
    )
    assert made["name"] == "billing"
    assert (made["order"], made["start"], made["lease_ms"]) == ("due", "new", 60_000)
    run("subscription", "create", "t", "audit", "--order", "arrival")
    run("send", "t", "--text", "a", "--delay", "1h")
    listed = run("subscription", "list", "t", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in listed]
    dues_ms = [row.pop("next_due_ms") for row in rows]
    assert dues_ms[0] > dues_ms[1] > 0  # the log does not wait for the due time
    assert "next due" in run("subscription", "list", "t").stdout
    assert rows == [
        {"name": "billing", "order": "due", "ready": 0, "scheduled": 1, "leased": 0},
        {"name": "audit", "order": "arrival", "ready": 1, "scheduled": 1, "leased": 0},
    ]
    altered = json.loads(
        run("subscription", "alter", "t", "billing", "--lease", "2m", "--json").stdout
    )
    assert altered == made | {"lease_ms": 120_000}
    shown = json.loads(run("subscription", "show", "t", "billing", "--json").stdout)
    assert shown == altered
    assert run("subscription", "show", "t", "other").exit_code != 0
    assert run("subscription", "alter", "t", "other", "--lease", "2m").exit_code != 0
    assert run("subscription", "alter", "t", "billing").exit_code == 2


def test_it_is_consumed_and_paused_by_itself(run: Run) -> None:
    run("topic", "create", "t", "--no-unnamed")
    run("subscription", "create", "t", "a")
    run("subscription", "create", "t", "b")
    run("send", "t", "--text", "x")
    run("subscription", "pause", "t", "a")
    consume = ("consume", "t", "--max", "1", "--timeout")
    assert run(*consume, "100ms", "--subscription", "a").stdout_bytes == b""
    assert run(*consume, "10s", "--subscription", "b").stdout_bytes == b"x\n"
    run("subscription", "resume", "t", "a")
    assert run(*consume, "10s", "--subscription", "a").stdout_bytes == b"x\n"
    assert run(*consume, "100ms").stdout_bytes == b""


def test_deleting_asks_first(run: Run) -> None:
    run("topic", "create", "t")
    run("subscription", "create", "t", "a")
    assert run("subscription", "delete", "t", "a", stdin=b"n\n").exit_code != 0
    assert run("subscription", "delete", "t", "a", "--yes").exit_code == 0
    assert run("subscription", "list", "t", "--json").stdout == ""
    assert run("subscription", "delete", "t", "a", "--yes").exit_code != 0


def test_it_goes_back_and_on(run: Run) -> None:
    run("topic", "create", "t", "--retention", "1h")
    run("subscription", "create", "t", "a")
    run("send", "t", "--text", "x")
    consume = ("consume", "t", "--subscription", "a", "--max", "1")
    assert run(*consume).stdout == "x\n"
    sought = run("subscription", "seek", "t", "a", "--to", "10m-ago", "--json")
    assert json.loads(sought.stdout) == {"replayed": 1, "passed": 0}
    assert run(*consume).stdout == "x\n"
    assert run(*consume, "--from", "beginning").stdout == "x\n"
    run("send", "t", "--text", "y")
    sought = run("subscription", "seek", "t", "a", "--to", "end", "--json")
    assert json.loads(sought.stdout) == {"replayed": 0, "passed": 1}
    assert run("subscription", "seek", "t", "a", "--to", "soon").exit_code == 2
    made = run("subscription", "create", "t", "b", "--start", "10m-ago", "--json")
    assert json.loads(made.stdout)["start"] > 0
    run("subscription", "create", "t", "c", "--start", "beginning")
    assert run("consume", "t", "--subscription", "c", "--max", "2").stdout == "x\ny\n"


def test_it_goes_back_with_some_messages(run: Run) -> None:
    run("topic", "create", "t", "--retention", "1h")
    rows = b'{"payload":"x","group":"acme"}\n{"payload":"y","group":"rest"}\n'
    assert run("send", "t", "--format", "jsonl", stdin=rows).exit_code == 0
    consume = ("consume", "t", "--timeout")
    assert run(*consume, "10s", "--max", "2").stdout == "x\ny\n"
    seek = ("subscription", "seek", "t", "", "--json", "--to", "beginning")
    sought = run(*seek, "--group", "acme", "--due-from", "2020-01-01T00:00:00Z")
    assert json.loads(sought.stdout) == {"replayed": 1, "passed": 0}
    assert run(*consume, "10s", "--max", "1").stdout == "x\n"
    none = run(*seek, "--due-to", "2020-01-01T00:00:00Z")
    assert json.loads(none.stdout) == {"replayed": 0, "passed": 0}
    run(*consume, "100ms", "--from", "beginning", "--tag", "rest")
    assert run(*consume, "100ms").stdout == ""  # none had that tag, so none came back
    back = run(*consume, "10s", "--max", "2", "--from", "beginning", "--not-tag", "rest")
    assert back.stdout == "x\ny\n"


def test_an_ephemeral_one_is_there_while_it_is_consumed(run: Run) -> None:
    run("topic", "create", "t", "--retention", "1h")
    run("send", "t", "--text", "x")
    run("send", "t", "--text", "y")
    consume = ("consume", "t", "--ephemeral", "--max", "2", "--timeout")
    assert run(*consume, "100ms").stdout == ""  # it begins with what comes
    assert run(*consume, "10s", "--from", "beginning").stdout == "x\ny\n"
    assert run(*consume, "10s", "--from", "10m-ago", "--not-tag", "mail").stdout == "x\ny\n"
    assert run(*consume, "100ms", "--from", "10m-ago", "--tag", "mail").stdout == ""
    assert run("subscription", "list", "t", "--json").stdout == ""
    assert run(*consume, "100ms", "--subscription", "a").exit_code == 2
    made = run("subscription", "create", "t", "a", "--ephemeral", "1m", "--json").stdout
    assert json.loads(made)["ephemeral_ms"] == 60_000
    kept = run("subscription", "alter", "t", "a", "--ephemeral", "0s", "--json").stdout
    assert json.loads(kept)["ephemeral_ms"] == 0


def test_tags_of_a_subscription(run: Run) -> None:
    run("topic", "create", "t")
    made = run("subscription", "create", "t", "eu", "--tag", "eu", "--tag", "uk", "--json").stdout
    assert json.loads(made)["tags_any"] == ["eu", "uk"]
    run("subscription", "create", "t", "rest", "--not-tag", "eu")
    run("send", "t", "--text", "without tags")
    rows = map(json.loads, run("subscription", "list", "t", "--json").stdout.splitlines())
    assert {row["name"]: row["ready"] for row in rows} == {"eu": 0, "rest": 1}
    altered = run("subscription", "alter", "t", "eu", "--not-tag", "old", "--json").stdout
    assert json.loads(altered)["tags_none"] == ["old"]
    assert json.loads(altered)["tags_any"] == ["eu", "uk"]
