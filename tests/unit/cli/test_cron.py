"""`dejaq cron`: entries made, listed, run and previewed.

Not covered: when entries fire (tests/rules); processes (tests/cli/test_cron.py).
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run, invoke


def put(run: Run, name: str, *more: str) -> dict[str, object]:
    found = run("cron", "put", "t", name, "--json", *more)
    assert found.exit_code == 0, found.stderr
    made: dict[str, object] = json.loads(found.stdout)
    return made


def test_an_entry_is_made_as_it_was_given__and_shown(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "t", "--kind", "cron")
    path = tmp_path / "payload"
    path.write_bytes(b"go")
    more = ("--cron", "0 9 * * *", "--zone", "Europe/Berlin", "--header", "a=b=c")
    made = put(run, "daily", *more, "--file", str(path), "--tag", "x", "--tag", "y")
    assert (made["cron"], made["zone"], made["payload"]) == ("0 9 * * *", "Europe/Berlin", "go")
    assert (made["headers"], made["tags"]) == ({"a": "b=c"}, ["x", "y"])
    assert made["next"] is not None
    assert json.loads(run("cron", "show", "t", "daily", "--json").stdout) == made


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"go")
    for more, text in (
        (("--text", "a", "--file", str(path)), "not both"),
        (("--header", "a"), "name=value"),
    ):
        found = invoke("cron", "put", "t", "n", "--every", "1h", *more, url="dejaq://127.0.0.1:1")
        assert (found.exit_code, text in found.stderr) == (2, True)


def test_entries_are_listed_by_name(run: Run) -> None:
    run("topic", "create", "t", "--kind", "cron")
    for name in ("b", "a", "c"):
        put(run, name, "--every", "1h")
    shown = run("cron", "list", "t", "--limit", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["name"] for line in shown] == ["a", "b"]
    assert "every 3600000 ms" in run("cron", "list", "t").stdout


def test_entries_are_paused_resumed_run_and_deleted(run: Run) -> None:
    run("topic", "create", "t", "--kind", "cron")
    put(run, "a", "--every", "1h", "--text", "go")
    for action, paused in (("pause", True), ("resume", False)):
        run("cron", action, "t", "a")
        assert json.loads(run("cron", "show", "t", "a", "--json").stdout)["paused"] is paused
    message_id = json.loads(run("cron", "run", "t", "a", "--json").stdout)["id"]
    row = json.loads(run("peek", "t", "--id", message_id, "--json").stdout)
    assert row["payload"] == "go"
    assert json.loads(run("cron", "delete", "t", "a", "--json").stdout) == {"deleted": 1}
    assert run("cron", "show", "t", "a").exit_code == 2


def test_a_preview_needs_no_entry__the_next_firings_of_one_are_the_same(run: Run) -> None:
    after = ("--after", "2100-01-01T00:00:00Z", "--count", "2", "--json")
    shown = run("cron", "preview", "0 9 * * *", "--zone", "Europe/Berlin", *after).stdout
    dues = [json.loads(line)["due"] for line in shown.splitlines()]
    assert dues == ["2100-01-01T08:00:00.000Z", "2100-01-02T08:00:00.000Z"]
    run("topic", "create", "t", "--kind", "cron")
    put(run, "daily", "--cron", "0 9 * * *", "--zone", "Europe/Berlin")
    assert run("cron", "next", "t", "daily", *after).stdout == shown
