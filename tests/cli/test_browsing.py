"""`peek`, `counts`, `histogram`, and `move`, `cancel`, `topic purge` by filter, on a real port."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run
from tests.cli.test_commands import consumed, json_lines

LINES = b"".join(
    json.dumps(
        {"payload": f"m{n}", "due": 4_000_000_000_000 + 1_000 * n, "group": "ab"[n % 2],
         "tags": ["even"] if n % 2 == 0 else ["odd", "three"] if n % 3 == 0 else []}
    ).encode() + b"\n"
    for n in range(10)
)  # fmt: skip
FROM, MIDDLE, TO = "4000000000000", "4000000005000", "4000000010000"


@pytest.fixture
def filled(run: Run) -> Run:
    assert run("topic", "create", "a").exit_code == 0
    assert run("send", "a", "--format", "jsonl", stdin=LINES).exit_code == 0
    return run


def payloads(run: Run, *options: str) -> list[str]:
    return [row["payload"] for row in json_lines(run("peek", "a", "--json", *options).stdout)]


def test_peek_by_group_tags_and_time(filled: Run) -> None:
    assert payloads(filled, "--group", "a") == ["m0", "m2", "m4", "m6", "m8"]
    assert payloads(filled, "--all-tags", "odd", "--all-tags", "three") == ["m3", "m9"]
    assert payloads(filled, "--tag", "even", "--tag", "three", "--from", MIDDLE) == [
        "m6",
        "m8",
        "m9",
    ]
    assert payloads(filled, "--not-tag", "even", "--to", MIDDLE) == ["m1", "m3"]
    assert payloads(filled, "--state", "ready") == []
    assert payloads(filled, "--id", "3", "--id", "4") == ["m3", "m4"]
    assert payloads(filled, "--priority-from", "40000") == []
    assert "m7" in filled("peek", "a", "--group", "b").stdout


def test_counts_and_histogram(filled: Run) -> None:
    assert "scheduled   10\n" in filled("counts", "a").stdout
    assert json_lines(filled("counts", "a", "--by", "tag", "--json").stdout) == [
        {"tag": "even", "count": 5}, {"tag": "odd", "count": 2}, {"tag": "three", "count": 2},
    ]  # fmt: skip
    assert filled("counts", "a", "--by", "group", "--limit", "1").stdout.splitlines()[1:] == [
        "a      5"
    ]
    window = ["histogram", "a", "--from", FROM, "--to", TO, "--bucket", "4s"]
    assert [row["count"] for row in json_lines(filled(*window, "--json").stdout)] == [4, 4, 2]
    shown = filled(*window).stdout.splitlines()
    assert [line.count("█") for line in shown] == [0, 40, 40, 20]
    rough = filled(*window, "--rough", "--group", "a", "--json").stdout
    assert [row["count"] for row in json_lines(rough)] == [2, 2, 1]


def test_move_by_filter(filled: Run) -> None:
    asked = ["move", "a", "--group", "a", "--to", MIDDLE, "--by", "1h"]
    assert filled(*asked, "--dry-run").stdout == "would_move 3\n"
    assert filled(*asked).stdout == "moved 3\n"
    assert filled(*asked).stdout == "moved 0\n"
    assert payloads(filled, "--limit", "2", "--group", "a") == ["m6", "m8"]
    evenly = ["--window-from", MIDDLE, "--window-to", TO]
    assert filled("move", "a", "--group", "a", *evenly, "--dry-run").stdout.startswith("would_move")
    for wrong in ([*evenly, "--by", "1h"], evenly[:2], [*evenly, "--id", "1"]):
        group = [] if "--id" in wrong else ["--group", "a"]
        assert filled("move", "a", *group, *wrong).exit_code == 2, wrong
    back = filled("move", "a", "--from", TO, "--by", "-1h", "--set-group", "c", "--json")
    assert json.loads(back.stdout) == {"moved": 3}
    assert payloads(filled, "--group", "c") == ["m0", "m2", "m4"]
    assert filled("move", "a", "--id", "1", "--set-priority", "3").stdout.endswith("OK\n")
    assert payloads(filled, "--priority-to", "3") == ["m1"]


def test_cancel_by_filter_and_purge(filled: Run) -> None:
    assert filled("cancel", "a", "--tag", "odd", "--dry-run").stdout == "would_cancel 2\n"
    assert filled("cancel", "a", "--tag", "odd").stdout == "cancelled 2\n"
    assert filled("topic", "purge", "a", stdin=b"n\n").exit_code != 0
    assert len(payloads(filled)) == 8
    assert json.loads(filled("topic", "purge", "a", "--yes", "--json").stdout) == {"cancelled": 8}
    assert payloads(filled) == []


def test_consume_by_tag(filled: Run) -> None:
    filled("move", "a", "--state", "scheduled", "--delay", "0")
    some = consumed(filled, "a", "--tag", "even", "--tag", "three", "--not-tag", "odd")
    assert [row["payload"] for row in some] == ["m0", "m2", "m4", "m6", "m8"]
    assert len(consumed(filled, "a")) == 5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["move", "a", "--key", "k", "--group", "g", "--due", "1800000000000"],
            "select them by a filter",
        ),
        (["move", "a", "--group", "g", "--due", "1800000000000", "--by", "1h"], "one of them"),
        (["move", "a", "--group", "g"], "--set-priority"),
        (["move", "a", "--state", "leased", "--due", "1800000000000"], "--state"),
        (["cancel", "a", "--key", "k", "--dry-run"], "selected by a filter"),
        (["peek", "a", "--key", "k", "--id", "1"], "one of the two"),
        (
            ["histogram", "a", "--bucket", "1ms", "--from", "0", "--to", "1970-01-01T00:01:30Z"],
            "bucket_ms",
        ),
    ],
)
def test_wrong_calls_say_what_is_wrong(run: Run, arguments: list[str], text: str) -> None:
    run("topic", "create", "a")
    found = run(*arguments)
    assert found.exit_code == 2
    assert text in found.stderr
