"""`dejaq cron` against a real port.

Covered: what is printed, in both forms, and the exit status. When entries fire is tested in
tests/rules/test_rule_17_cron.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run


def made(run: Run, *options: str) -> dict[str, Any]:
    found = run("cron", "put", "c", *options, "--json")
    assert found.exit_code == 0, found.stderr
    values: dict[str, Any] = json.loads(found.stdout)
    return values


def test_an_entry_is_put_listed_shown_paused_resumed_and_deleted(run: Run, tmp_path: Path) -> None:
    assert run("topic", "create", "c", "--kind", "cron").exit_code == 0
    options = ["--cron", "0 9 * * *", "--zone", "Europe/Berlin", "--text", "go", "--tag", "red"]
    entry = made(run, "daily", *options, "--header", "a=b=c", "--misfire", "skip")
    assert (entry["payload"], entry["headers"], entry["tags"]) == ("go", {"a": "b=c"}, ["red"])
    (tmp_path / "payload").write_bytes(b"from a file")
    entry = made(run, "often", "--every", "1h", "--file", str(tmp_path / "payload"))
    assert (entry["every_ms"], entry["payload"]) == (3_600_000, "from a file")
    listed = [json.loads(line) for line in run("cron", "list", "c", "--json").stdout.splitlines()]
    assert [entry["name"] for entry in listed] == ["daily", "often"]
    assert "every 3600000 ms" in run("cron", "list", "c").stdout
    assert run("cron", "pause", "c", "daily", "often").exit_code == 0
    assert "paused yes\n" in run("cron", "show", "c", "daily").stdout
    assert "next -\n" in run("cron", "show", "c", "daily").stdout
    assert run("cron", "resume", "c", "daily").exit_code == 0
    assert json.loads(run("cron", "show", "c", "daily", "--json").stdout)["next_ms"] > 0
    assert run("cron", "delete", "c", "daily", "often", "none").stdout == "deleted 2\n"
    assert run("cron", "list", "c").stdout == ""


def test_next_firings_and_a_run_now(run: Run) -> None:
    assert run("topic", "create", "c", "--kind", "cron").exit_code == 0
    made(run, "daily", "--cron", "0 9 * * *", "--zone", "America/New_York", "--text", "go")
    found = run("cron", "next", "c", "daily", "--count", "2", "--after", "2026-03-07T12:00:00Z")
    times = [line.split()[-1] for line in found.stdout.splitlines()[1:]]
    assert times == ["2026-03-07T14:00:00.000Z", "2026-03-08T13:00:00.000Z"]
    options = ["--zone", "Europe/Berlin", "--count", "1", "--after", "2026-03-28T12:00:00Z"]
    found = run("cron", "preview", "30 2 * * *", *options, "--misfire", "skip")
    assert found.stdout.split()[-1] == "2026-03-30T00:30:00.000Z"
    message_id = json.loads(run("cron", "run", "c", "daily", "--json").stdout)["id"]
    consumed = run("consume", "c", "--max", "1", "--timeout", "5s", "--json")
    assert json.loads(consumed.stdout)["id"] == message_id


def test_a_wrong_call_says_what_is_wrong(run: Run) -> None:
    assert run("topic", "create", "c", "--kind", "cron").exit_code == 0
    found = run("cron", "put", "c", "x", "--cron", "61 * * * *")
    assert found.exit_code == 2
    assert "entry.cron" in found.stderr
    assert run("cron", "put", "c", "x", "--every", "1s", "--header", "a").exit_code == 2
    found = run("cron", "show", "c", "none")
    assert found.exit_code == 2
    assert "the name of an entry" in found.stderr
    assert run("topic", "create", "t").exit_code == 0
    assert "kind cron" in run("cron", "list", "t").stderr
