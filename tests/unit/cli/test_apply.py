"""`dejaq apply`: what is planned, what is done, and what is refused before anything is done.

Not covered: what a file may say (test_declaration.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

FILE = """
[topics.mails]
lease_ms = "1m"
max_attempts = 5

[topics.reports]
kind = "cron"

[topics.reports.entries.daily]
cron = "0 9 * * MON-FRI"
zone = "Europe/Berlin"
payload = "go"

[topics.reports.entries.pulse]
every_ms = "10s"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "topics.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def topics(run: Run) -> dict[str, Any]:
    lines = run("topic", "list", "--json").stdout.splitlines()
    return {topic["name"]: topic for topic in map(json.loads, lines)}


def plan(run: Run, file: Path, *options: str) -> list[str]:
    found = run("apply", str(file), "--dry-run", *options)
    assert found.exit_code == 0, found.output
    return found.stdout.splitlines()


def test_a_file_is_made_so__and_twice_changes_nothing(run: Run, file: Path) -> None:
    assert plan(run, file) == [
        "+ create topic mails: lease_ms 60000, max_attempts 5",
        '+ create topic reports: kind "cron"',
        '~ put entry daily of reports: cron "0 9 * * MON-FRI", zone "Europe/Berlin", payload "go"',
        "~ put entry pulse of reports: every_ms 10000",
    ]
    assert topics(run) == {}, "a dry run changes nothing"
    assert run("apply", str(file), stdin=b"n\n").exit_code != 0
    assert topics(run) == {}, "nobody said yes"
    done = run("apply", str(file), "--yes")
    assert (done.exit_code, "done: 4 steps" in done.stderr) == (0, True)
    assert topics(run)["mails"]["lease_ms"] == 60_000
    shown = json.loads(run("cron", "show", "reports", "daily", "--json").stdout)
    assert (shown["payload"], shown["zone"]) == ("go", "Europe/Berlin")
    assert plan(run, file) == []


def test_what_drifted_comes_back__what_operators_and_brokers_do_stays(run: Run, file: Path) -> None:
    run("apply", str(file), "--yes")
    run("topic", "alter", "mails", "--lease", "5s", "--max-backlog", "7", "--partitions", "3")
    run("topic", "pause", "mails")
    run("cron", "put", "reports", "daily", "--cron", "0 8 * * *", "--text", "go", "--paused")
    run("cron", "pause", "reports", "pulse")
    assert plan(run, file) == [
        "~ alter topic mails: lease_ms 5000 -> 60000, max_backlog_count 7 -> 0",
        '~ put entry daily of reports: cron "0 8 * * *" -> "0 9 * * MON-FRI", '
        'zone "UTC" -> "Europe/Berlin"',
    ]
    assert run("apply", str(file), "--yes").exit_code == 0
    mails = topics(run)["mails"]
    assert (mails["lease_ms"], mails["partitions"], mails["paused"]) == (60_000, 3, True)
    shown = json.loads(run("cron", "show", "reports", "daily", "--json").stdout)
    assert (shown["cron"], shown["paused"]) == ("0 9 * * MON-FRI", True)
    assert plan(run, file) == []


def test_only_prune_deletes__and_names_what_is_lost(run: Run, file: Path) -> None:
    run("apply", str(file), "--yes")
    for name in ("old", "mails.dead"):
        run("topic", "create", name)
    for text in "ab":
        run("send", "old", "--text", text, "--delay", "1h")
    run("cron", "put", "reports", "gone", "--cron", "0 8 * * *")
    assert plan(run, file) == []
    assert plan(run, file, "--prune") == [
        "- drop entry gone of reports",
        "- delete topic old and its 2 messages",
    ]
    rows = [json.loads(line) for line in plan(run, file, "--prune", "--json")]
    assert [(row["action"], row["topic"], row["loses"]) for row in rows] == [
        ("drop", "reports", 0),
        ("delete", "old", 2),
    ]
    assert run("apply", str(file), "--prune", "--yes").exit_code == 0
    assert set(topics(run)) == {"mails", "mails.dead", "reports"}


def test_what_cannot_be_is_refused_before_anything_is_done(run: Run, file: Path) -> None:
    run("topic", "create", "reports", "--kind", "fair", "--partitions", "4")
    found = run("apply", str(file), "--yes")
    assert found.exit_code == 2
    assert "topics.reports.kind: 'fair', as the topic was made with it" in found.stderr
    file.write_text("[topics.reports]\nkind = 'fair'\npartitions = 2\n", encoding="utf-8")
    found = run("apply", str(file), "--yes")
    assert (found.exit_code, "at least 4" in found.stderr) == (2, True)
    assert set(topics(run)) == {"reports"}
