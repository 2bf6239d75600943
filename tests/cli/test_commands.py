"""The commands against a real port: topics, send, consume, peek, move, cancel, stats, bench.

Covered: what is printed, in both forms, and the exit status. What the broker does with it is tested
in tests/rules; reading of files in tests/unit/cli/test_sources.py.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, invoke


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def consumed(run: Run, topic: str, *options: str) -> list[dict[str, Any]]:
    found = run("consume", topic, "--timeout", "300ms", "--json", *options)
    assert found.exit_code == 0
    return json_lines(found.stdout)


def test_topic_is_created_shown_altered_listed_and_deleted(run: Run) -> None:
    assert run("topic", "create", "a", "--lease", "10s").exit_code == 0
    assert "lease_ms 10000\n" in run("topic", "show", "a").stdout
    altered = run("topic", "alter", "a", "--lease", "1m", "--json")
    assert json.loads(altered.stdout)["lease_ms"] == 60_000
    (listed,) = json_lines(run("topic", "list", "--json").stdout)
    assert (listed["name"], listed["lease_ms"]) == ("a", 60_000)
    assert "60000" in run("topic", "list").stdout
    assert run("topic", "delete", "a", "--yes").exit_code == 0
    assert run("topic", "list").stdout == ""


def test_a_short_lease_is_warned_of_beside_the_answer(run: Run) -> None:
    made = run("topic", "create", "a", "--lease", "200ms", "--json")
    assert json.loads(made.stdout)["lease_ms"] == 200
    assert made.stderr.startswith("warning: lease_ms is 200: ")
    assert run("topic", "alter", "a", "--lease", "10s").stderr == ""
    assert "warning: lease_ms is 500" in run("topic", "alter", "a", "--lease", "500ms").stderr


def test_every_setting_of_a_topic_has_an_option(run: Run) -> None:
    options = ["--kind", "fair", "--weight", "vip=3", "--weight", "a=b=2", "--backoff", "2s"]
    options += ["--on-duplicate", "replace", "--producer-rate-max", "50", "--paused"]
    made = json.loads(run("topic", "create", "a", *options, "--json").stdout)
    assert made["weights"] == {"vip": 3, "a=b": 2}
    assert (made["kind"], made["on_duplicate"]) == ("fair", "replace")
    assert (made["backoff_ms"], made["producer_rate_max"], made["paused"]) == (2_000, 50, True)
    changed = run("topic", "alter", "a", "--no-paused", "--weight", "vip=1", "--json")
    assert json.loads(changed.stdout)["paused"] is False
    assert json.loads(changed.stdout)["weights"] == {"vip": 1}


def test_a_topic_is_paused__goes_on__grows__and_shows_who_has_what(run: Run) -> None:
    run("topic", "create", "a", "--assignment", "exclusive", "--partitions", "2")
    assert run("topic", "pause", "a").exit_code == 0
    assert "paused yes\n" in run("topic", "show", "a").stdout
    run("send", "a", "--text", "x")
    assert consumed(run, "a") == []
    assert run("topic", "resume", "a").exit_code == 0
    assert [row["payload"] for row in consumed(run, "a")] == ["x"]
    grown = json.loads(run("topic", "alter", "a", "--partitions", "4", "--json").stdout)
    assert grown["partitions"] == 4
    refused = run("topic", "alter", "a", "--partitions", "3")
    assert refused.exit_code != 0
    assert "at least 4" in refused.stderr
    shown = run("topic", "assignments", "a")
    assert shown.exit_code == 0
    assert shown.stdout.count("\n") >= 4
    auto = json.loads(run("topic", "create", "b", "--partitions", "auto", "--json").stdout)
    assert (auto["partitions"], auto["auto_partitions"]) == (1, True)


def test_a_setting_that_makes_no_sense_is_refused(run: Run) -> None:
    assert "a weight is like vip=3" in run("topic", "create", "a", "--weight", "vip").stderr
    assert "'maybe' is not one of" in run("topic", "create", "a", "--on-duplicate", "maybe").stderr
    assert run("topic", "alter", "a", "--partitions", "3").exit_code == 2


def test_topic_that_exists_is_refused_unless_that_is_fine(run: Run) -> None:
    assert run("topic", "create", "a").exit_code == 0
    again = run("topic", "create", "a")
    assert again.exit_code == 3
    assert again.stderr.startswith("error: ")
    assert run("topic", "create", "a", "--exist-ok").exit_code == 0


def test_delete_asks_first(run: Run) -> None:
    run("topic", "create", "a")
    refused = run("topic", "delete", "a", stdin=b"n\n")
    assert refused.exit_code != 0
    assert run("topic", "show", "a").exit_code == 0
    assert run("topic", "delete", "a", stdin=b"y\n").exit_code == 0
    assert run("topic", "show", "a").exit_code == 2


def test_alter_without_a_change_is_a_wrong_call(run: Run) -> None:
    found = run("topic", "alter", "a")
    assert (found.exit_code, found.stderr[:24]) == (2, "error: nothing to change")


def test_one_message_is_sent_peeked_moved_and_consumed(run: Run) -> None:
    run("topic", "create", "a")
    sent = run("send", "a", "--text", "grüße", "--delay", "1h", "--key", "k")
    assert sent.stdout == "0\n"
    (peeked,) = json_lines(run("peek", "a", "--json").stdout)
    assert (peeked["key"], peeked["payload"], peeked["state"]) == ("k", "grüße", "scheduled")
    assert "grüße" in run("peek", "a").stdout
    assert consumed(run, "a") == []
    moved = run("move", "a", "--key", "k", "--delay", "0")
    assert (moved.exit_code, moved.stdout) == (0, "message  status\nk        OK\n")
    (message,) = consumed(run, "a", "--max", "1")
    assert (message["id"], message["attempt"], message["payload"]) == ("0", 1, "grüße")
    assert consumed(run, "a") == []


def test_lines_are_sent_and_printed_as_they_were(run: Run) -> None:
    run("topic", "create", "a")
    lines = [f"line {n}".encode() for n in range(2_500)]
    sent = run("send", "a", stdin=b"\n".join(lines))
    assert (sent.exit_code, sent.stdout) == (0, "sent 2500\n")
    found = run("consume", "a", "--max", "2500")
    assert found.stdout_bytes.splitlines() == lines
    assert json.loads(run("stats", "a", "--json").stdout)["scheduled"] == 0


def test_max_takes_no_more_and_the_rest_stays(run: Run) -> None:
    run("topic", "create", "a")
    run("send", "a", stdin=b"1\n2\n3\n")
    assert run("consume", "a", "--max", "2").stdout == "1\n2\n"
    assert run("consume", "a", "--timeout", "300ms").stdout == "3\n"


def test_no_ack_gives_everything_back(run: Run) -> None:
    run("topic", "create", "a")
    run("send", "a", stdin=b"1\n2\n")
    assert [m["attempt"] for m in consumed(run, "a", "--no-ack")] == [1, 1]
    assert [m["attempt"] for m in consumed(run, "a", "--no-ack", "--max", "2")] == [2, 2]


def test_file_with_columns(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("email,remind_at,text\na@x,2020-01-01T00:00:00Z,hi\n", encoding="utf-8")
    run("topic", "create", "a")
    options = ["--due-column", "remind_at", "--key-column", "email", "--payload-column", "text"]
    assert run("send", "a", str(file), *options, "--json").stdout == '{"sent":1,"duplicate":0}\n'
    (message,) = consumed(run, "a")
    assert message["due"] == "2020-01-01T00:00:00.000Z"
    assert (message["key"], message["payload"]) == ("a@x", "hi")


def test_rows_with_a_live_key_are_counted_and_end_with_status_3(run: Run) -> None:
    run("topic", "create", "a")
    lines = b'{"key": "k", "delay_ms": 60000}\n'
    assert run("send", "a", "--format", "jsonl", stdin=lines).exit_code == 0
    again = run(
        "send", "a", "--format", "jsonl", stdin=lines + b'{"key": "l", "delay_ms": 60000}\n'
    )
    assert (again.exit_code, again.stdout) == (3, "sent 1\nduplicate 1\n")
    single = run("send", "a", "--text", "x", "--key", "k")
    assert (single.exit_code, single.stdout) == (3, "")


def test_bytes_that_are_no_text_are_shown_as_base64(run: Run) -> None:
    run("topic", "create", "a")
    run("send", "a", stdin=b"\xff\x01\n")
    (message,) = consumed(run, "a")
    assert message["payload_base64"] == "/wE="


def test_cancel_names_each_and_ends_with_status_3_if_one_is_not_there(run: Run) -> None:
    run("topic", "create", "a")
    run("send", "a", "--text", "x", "--delay", "1h", "--key", "k")
    found = run("cancel", "a", "--key", "k", "--key", "nobody", "--json")
    assert found.exit_code == 3
    assert json_lines(found.stdout) == [
        {"message": "k", "status": "OK"},
        {"message": "nobody", "status": "NOT_FOUND"},
    ]
    run("send", "a", "--text", "y", "--delay", "1h")
    assert run("cancel", "a", "--id", "1").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["send", "a", "--text", "x", "--due", "1800000000000", "--delay", "5s"],
            "--due or --delay, not both",
        ),
        (["send", "a", "--text", "x", "--delay", "10"], "needs its unit, as 10s or 10ms"),
        (["send", "a", "--text", "x", "--due", "1800000000"], "looks like seconds"),
        (["send", "a", "file", "--text", "x"], "--text, --value, --file or FILE, one of them"),
        (["send", "a", "--key", "k"], "--key goes with --text"),
        (["send", "a", "/nowhere/at/all"], "FILE: cannot read"),
        (["move", "a", "--key", "k"], "say the new time"),
        (["move", "a", "--delay", "1s"], "by --key or by --id"),
        (["cancel", "a", "--key", "k", "--id", "1"], "by --key or by --id"),
        (["cancel", "a"], "by --key or by --id"),
        (["send", "no topic", "--text", "x"], "topic.name"),
        (["send", "nowhere", "--text", "x"], "dejaq topic create"),
        (["consume", "nowhere", "--timeout", "1s"], "dejaq topic create"),
        (["peek", "nowhere"], "dejaq topic create"),
        (["stats", "nowhere"], "dejaq topic create"),
    ],
)
def test_wrong_call_says_what_is_wrong(run: Run, arguments: list[str], text: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2
    assert found.stderr.startswith("error: ")
    assert text in found.stderr
    assert found.stdout == ""


def test_bad_input_file_names_the_column(run: Run) -> None:
    run("topic", "create", "a")
    found = run("send", "a", "--format", "csv", stdin=b"due\nnever\n")
    assert found.exit_code == 2
    assert "due column" in found.stderr


def test_stats_of_the_broker_name_its_topics(run: Run) -> None:
    run("topic", "create", "a")
    run("send", "a", "--text", "x", "--delay", "1h")
    assert "topics.a.scheduled 1\n" in run("stats").stdout
    assert json.loads(run("stats", "--json").stdout)["topics"]["a"]["scheduled"] == 1


def test_bench_measures_and_leaves_nothing_behind(run: Run) -> None:
    found = run("bench", "--messages", "3000", "--lateness-seconds", "1", "--json")
    figures = {line["name"]: line for line in json_lines(found.stdout)}
    names = ["enqueue", "lease_ack", "lateness_p50", "lateness_p99", "lateness_max"]
    assert list(figures) == names
    assert figures["enqueue"]["value"] > 0
    assert figures["lateness_p50"]["value"] >= 0
    assert run("topic", "list").stdout == ""


@pytest.mark.parametrize("arguments", [["stats"], ["send", "a", "--text", "x"], ["consume", "a"]])
def test_no_broker_there_ends_with_status_4_and_a_sentence(arguments: list[str]) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody answers there, and nobody else gets the port meanwhile.
        taken.bind(("127.0.0.1", 0))
        found = invoke(*arguments, "--url", f"dejaq://127.0.0.1:{taken.getsockname()[1]}")
    assert found.exit_code == 4
    assert "start one with `dejaq serve`" in found.stderr
    assert found.stderr.count("\n") == 1


def test_url_that_is_none_is_a_wrong_call() -> None:
    found = invoke("stats", "--url", "http://localhost")
    assert found.exit_code == 2
    assert found.stderr.startswith("error: ")


def test_dead_letters_are_listed_sent_back_and_thrown_away(run: Run) -> None:
    assert run("topic", "create", "a", "--kind", "priority", "--max-attempts", "1").exit_code == 0
    for text in ("one", "two"):
        sent = run("send", "a", "--text", text, "--key", text, "--priority", "7", "--ttl", "0s")
        assert sent.exit_code == 0
    letters: list[dict[str, Any]] = []
    for _ in range(1_000):
        listed = run("dead", "list", "a.dead", "--json")
        letters = json_lines(listed.stdout) if listed.exit_code == 0 else []
        if len(letters) == 2:
            break
    names = ("reason", "attempts", "origin", "key", "payload")
    assert [[letter[name] for name in names] for letter in letters] == [
        ["expired", "0", "a", "one", "one"],
        ["expired", "0", "a", "two", "two"],
    ]
    assert "expired" in run("dead", "list", "a.dead").stdout
    assert run("dead", "redrive", "a.dead", "--reason", "refused").stdout == "moved 0\nleft 0\n"
    assert run("dead", "redrive", "a.dead", "--id", letters[0]["id"]).stdout == "moved 1\nleft 0\n"
    assert consumed(run, "a", "--max", "1")[0]["payload"] == "one"
    purged = run("dead", "purge", "a.dead", "--yes", "--json")
    assert json.loads(purged.stdout) == {"purged": 1}
    assert run("dead", "list", "a.dead", "--json").stdout == ""


def test_the_lines_of_a_file_get_priority_and_time_to_live(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "a", "--kind", "priority")
    lines = tmp_path / "lines.txt"
    lines.write_text("x\ny\n")
    options = ("--priority", "9", "--ttl", "1h", "--delay", "1h")
    assert run("send", "a", str(lines), *options).stdout == "sent 2\n"
    assert run("send", "a", str(lines), "--expires", "2099-01-01T00:00:00Z").exit_code == 0
    both = run("send", "a", "--text", "x", "--ttl", "1s", "--expires", "2099-01-01T00:00:00Z")
    assert both.exit_code == 2


def test_transactions_lists_what_is_undecided(run: Run, url: str) -> None:
    from dejaqueue.client import Client

    run("topic", "create", "a")
    assert run("transactions", "a").stdout == ""
    with Client(url) as client:
        transaction = client.transaction()
        transaction.send_batch("a", ["x", "y"])
        [row] = json_lines(run("transactions", "a", "--json").stdout)
        assert (row["transaction"], row["staged"], row["acked"]) == (transaction.name, 2, 0)
        assert 0 < row["left_ms"] <= 60_000
        transaction.commit()
    assert run("transactions", "a").stdout == ""


def test_the_bare_command_prints_its_help() -> None:
    found = invoke()
    assert found.exit_code == 0
    assert "Usage: " in found.stdout
    assert "serve " in found.stdout
    assert found.stderr == ""


def test_a_name_that_is_nearly_right_is_suggested(run: Run) -> None:
    run("topic", "create", "reminders")
    assert "(did you mean reminders?)" in run("peek", "reminder").stderr
    assert "did you mean" not in run("peek", "invoices").stderr
