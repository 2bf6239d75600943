"""`dejaq apply`: what is planned, what is done, and what is refused before anything is done.

Not covered: what a file may say (test_declaration.py).
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.model import CHANGEABLE, Topic
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
    assert "topics.reports.kind: 'fair', as it was made" in found.stderr
    file.write_text("[topics.reports]\nkind = 'fair'\npartitions = 2\n", encoding="utf-8")
    found = run("apply", str(file), "--yes")
    assert (found.exit_code, "at least 4" in found.stderr) == (2, True)
    assert set(topics(run)) == {"reports"}


# --- every setting ------------------------------------------------------------------------------

ANOTHER: dict[str, Any] = {
    "kind": "priority",
    "partitions": 4,
    "spread": 2,
    "lease_ms": 5_000,
    "lease_ahead_ms": 7,
    "max_payload_bytes": 99,
    "max_delay_ms": 8,
    "max_backlog_count": 9,
    "max_backlog_bytes": 10,
    "producer_rate_max": 11,
    "ageing_ms": 12,
    "weights": {"vip": 3},
    "group_in_flight_max": 13,
    "group_runs": True,
    "group_order": "priority",
    "max_attempts": 14,
    "dead_letter": "graves",
    "backoff_ms": 15,
    "backoff_factor": 3.0,
    "backoff_max_ms": 16,
    "backoff_jitter": 0.5,
    "on_duplicate": "keep",
    "assignment": "exclusive",
    "paused": True,
    "auto_partitions": True,
    "history": True,
    "retention_ms": 17,
    "retention_bytes": 18,
    "retention_keys": True,
    "cold_after_ms": 3_600_000,
    "spike_ahead_ms": 20_000,
    "unnamed": False,
    "subscriptions": {"s": {"max_attempts": 2}},
    "labels": {"owner": "me"},
}
"""A value of each setting that is not its default."""
NO_PLACE = ("history", "cold_after_ms")
"""What this broker, whose journal is in memory, has no place for."""
STAYS = ("paused", "partitions", "labels", "subscriptions")
"""What stays where the file says nothing."""


def test_the_table_has_every_setting() -> None:
    assert set(ANOTHER) | {"name"} == {setting.name for setting in fields(Topic)}


def toml(name: str, value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(toml(key, one) for key, one in value.items())
        return f"{name} = {{ {inner} }}"
    return f"{name} = {json.dumps(value)}"


@pytest.mark.parametrize("field", ANOTHER)
def test_each_setting_is_declared__altered__and_refused_by_name_where_it_stays(
    run: Run, file: Path, field: str
) -> None:
    said, silent = f"[topics.a]\n{toml(field, ANOTHER[field])}\n", "[topics.a]\n"
    if field in NO_PLACE:
        file.write_text(said, encoding="utf-8")
        after, before = json.dumps(ANOTHER[field]), json.dumps(getattr(Topic("a"), field))
        assert plan(run, file) == [f"+ create topic a: {field} {after}"]
        run("topic", "create", "a")
        assert plan(run, file) == [f"~ alter topic a: {field} {before} -> {after}"]
        return
    for before, after in ((said, silent), (silent, said)):
        file.write_text(before, encoding="utf-8")
        done = run("apply", str(file), "--yes")
        assert done.exit_code == 0, done.output
        assert plan(run, file) == [], "applied twice, it changes nothing"
        file.write_text(after, encoding="utf-8")
        done = run("apply", str(file), "--yes")
        if field not in CHANGEABLE:
            assert done.exit_code == 2, done.output
            assert f"topics.a.{field}: " in done.stderr
        elif after == silent and field in STAYS:
            assert (done.exit_code, "nothing to change" in done.stderr) == (0, True), done.output
        else:
            assert done.exit_code == 0, done.output
            assert field in done.stdout or field == "subscriptions"
            assert plan(run, file) == []
            found = topics(run)["a"].get(field)
            if field == "subscriptions":
                assert found["s"]["max_attempts"] == 2
            elif after == said:
                assert found == ANOTHER[field]
        run("topic", "delete", "a", "--yes")


def test_subscriptions_are_what_the_file_says(run: Run, file: Path) -> None:
    file.write_text(
        "[topics.orders]\n[topics.orders.subscriptions.billing]\n"
        'lease_ms = "1m"\nmax_attempts = 3\n[topics.orders.subscriptions.audit]\n'
        'order = "arrival"\nstart = "live"\n',
        encoding="utf-8",
    )
    run("topic", "create", "orders")
    run("subscription", "create", "orders", "old")
    run("send", "orders", "--text", "a", "--delay", "1h")
    assert plan(run, file) == [
        '~ put subscription billing of orders: lease_ms 60000, max_attempts 3, order "due", '
        'start "new"',
        '~ put subscription audit of orders: order "arrival", start "live"',
    ]
    assert plan(run, file, "--prune")[-1] == "- drop subscription old of orders and its 1 messages"
    assert run("apply", str(file), "--yes").exit_code == 0
    assert plan(run, file) == []
    run("subscription", "alter", "orders", "billing", "--max-attempts", "9", "--backoff", "5s")
    run("subscription", "pause", "orders", "billing")
    assert plan(run, file) == [
        "~ put subscription billing of orders: max_attempts 9 -> 3, backoff_ms 5000 -> null"
    ]
    assert run("apply", str(file), "--yes", "--prune").exit_code == 0
    found = topics(run)["orders"]["subscriptions"]
    assert set(found) == {"billing", "audit"}
    del found["billing"]["born"]
    assert found["billing"] == {
        "order": "due", "start": "new", "lease_ms": 60_000, "max_attempts": 3, "paused": True,
    }  # fmt: skip
    wrong = file.read_text(encoding="utf-8").replace('"arrival"', '"due"')
    file.write_text(wrong, encoding="utf-8")
    refused = run("apply", str(file), "--yes")
    assert refused.exit_code == 2
    assert "topics.orders.subscriptions.audit.order: 'arrival', as it was made" in refused.stderr


def test_what_is_kept_and_what_ends_by_itself_is_declared(run: Run, file: Path) -> None:
    """Retention of each kind, with and without a time; subscriptions that outlive no consumer."""
    text = (
        '[topics.log]\nunnamed = false\nretention_ms = "1d"\nretention_bytes = 1000\n'
        "[topics.states]\nretention_keys = true\n"
        '[topics.states.subscriptions.screen]\nephemeral_ms = "1m"\nstart = "beginning"\n'
    )
    file.write_text(text, encoding="utf-8")
    assert run("apply", str(file), "--yes").exit_code == 0
    found = topics(run)
    assert (found["log"]["retention_ms"], found["log"]["retention_bytes"]) == (86_400_000, 1_000)
    assert found["states"]["retention_keys"]
    assert found["states"]["subscriptions"]["screen"]["ephemeral_ms"] == 60_000
    assert plan(run, file) == []
    text = text.replace('retention_ms = "1d"\n', "").replace('ephemeral_ms = "1m"\n', "")
    file.write_text(text, encoding="utf-8")
    assert len(plan(run, file)) == 2
    assert run("apply", str(file), "--yes").exit_code == 0
    found = topics(run)
    assert "retention_ms" not in found["log"]
    assert found["log"]["retention_bytes"] == 1_000
    assert "ephemeral_ms" not in found["states"]["subscriptions"]["screen"]
    file.write_text(
        '[topics.log]\nunnamed = false\n[topics.log.subscriptions.a]\nephemeral_ms = "1h"\n',
        encoding="utf-8",
    )
    assert run("apply", str(file), "--yes").exit_code == 0
    file.write_text("[topics.log]\nunnamed = false\n[topics.states]\n", encoding="utf-8")
    assert not [line for line in plan(run, file, "--prune") if "subscription a" in line]
    file.write_text(
        '[topics.log]\nunnamed = false\n[topics.log.subscriptions.a]\nephemeral_ms = "0.5s"\n',
        encoding="utf-8",
    )
    assert "ephemeral_ms" in run("apply", str(file), "--yes").stderr


def test_prune_keeps_dead_letters_of_subscriptions_that_live(run: Run, file: Path) -> None:
    file.write_text("[topics.t.subscriptions.s]\nmax_attempts = 2\n", encoding="utf-8")
    run("apply", str(file), "--yes")
    for name in ("t.s.dead", "t.dead", "t.gone.dead"):
        run("topic", "create", name)
        run("send", name, "--text", "a")
    assert plan(run, file, "--prune") == ["- delete topic t.gone.dead and its 1 messages"]
