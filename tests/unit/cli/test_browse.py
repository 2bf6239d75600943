"""`dejaq peek`, `history`, `counts`, `histogram`: what they print of a broker's messages.

Not covered: which messages filters select (tests/cli/test_browsing.py).
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from dejaqueue.cli.browse import _summary, _unknown
from dejaqueue.client import HistoryGap, MessageChange, MessageHistory
from dejaqueue.settings import HistorySettings
from tests.cli.conftest import Run, invoke
from tests.integration.access_fixture import running

DUE = "2100-01-01T00:00:00Z"


def test_a_message_fits_on_a_line() -> None:
    row = {"id": "5", "due": "x", "state": "ready", "attempt": 1, "payload": "a\n b" + "c" * 90}
    shown = _summary(row)
    assert shown["payload"] == "a b" + "c" * 56 + "…"
    assert list(shown) == ["id", "due", "state", "attempt", "key", "payload"]


def test_peek_shows_messages_and_takes_none(run: Run) -> None:
    run("topic", "create", "t")
    for name in ("a", "b"):
        run("send", "t", "--text", f"of {name}", "--key", name, "--due", DUE)
    for _ in range(2):
        rows = [json.loads(line) for line in run("peek", "t", "--json").stdout.splitlines()]
        assert [(row["key"], row["payload"]) for row in rows] == [("a", "of a"), ("b", "of b")]
    assert "of a" in run("peek", "t", "--key", "a").stdout
    assert len(run("peek", "t", "--limit", "1", "--json").stdout.splitlines()) == 1


def test_peek_takes_one_kind_of_name(run: Run) -> None:
    found = run("peek", "t", "--key", "a", "--id", "5")
    assert (found.exit_code, "one of the two" in found.stderr) == (2, True)


def test_counts_are_one_row_a_group(run: Run) -> None:
    run("topic", "create", "t")
    rows = b'{"payload": "1", "group": "g"}\n{"payload": "2", "group": "g"}\n'
    run("send", "t", "--format", "jsonl", stdin=rows)
    found = run("counts", "t", "--by", "group", "--json").stdout
    assert json.loads(found) == {"group": "g", "count": 2}


def test_a_histogram_has_bars_for_people_and_figures_for_programs(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--text", "x", "--due", DUE)
    arguments = ("histogram", "t", "--from", DUE, "--to", "2100-01-01T02:00:00Z", "--bucket", "1h")
    rows = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    assert [row["count"] for row in rows] == [1, 0]
    assert rows[0]["due"] == "2100-01-01T00:00:00.000Z"
    assert "█" * 40 in run(*arguments).stdout


def test_a_histogram_begins_now_and_has_20_stretches__unless_one_says(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--text", "x", "--delay", "90m")
    rows = run("histogram", "t", "--bucket", "1h", "--json").stdout.splitlines()
    assert [json.loads(row)["count"] for row in rows] == [0, 1, *[0] * 18]


def test_history_shows_a_life__and_says_how_to_switch_it_on(tmp_path: Path) -> None:
    with running(history=HistorySettings(directory=str(tmp_path))) as site:
        run = partial(invoke, url=f"dejaq://127.0.0.1:{site.flight.port}")
        run("topic", "create", "t", "--history")
        run("topic", "create", "plain")
        ids = [
            json.loads(run("send", topic, "--text", "x", "--due", DUE, "--json").stdout)["id"]
            for topic in ("t", "plain")
        ]
        run("cancel", "t", "--id", str(ids[0]))
        found = run("history", "t", str(ids[0]), "--json")
        rows = [json.loads(line) for line in found.stdout.splitlines()]
        assert [row["change"] for row in rows] == ["enqueued", "cancelled"]
        assert (rows[0]["due"], found.stderr) == ("2100-01-01T00:00:00.000Z", "")
        assert "cancelled" in run("history", "t", str(ids[0])).stdout
        off = run("history", "plain", str(ids[1]))
        assert (off.exit_code, off.stdout) == (0, "")
        assert "nothing is recorded of message" in off.stderr
        assert "dejaq topic alter plain --history" in off.stderr


def test_what_is_not_known_of_a_life_is_said() -> None:
    found = MessageHistory(
        is_on=True,
        changes=(MessageChange("enqueued", 0, 1),),
        gaps=(HistoryGap(2, 3, 1_000, "history was off"), HistoryGap(5, 9, 2_000, "x", 4)),
        silent=("bob",),
    )
    off, behind, silent = _unknown("t", 7, found)
    assert "some changes" in off
    assert "history was off" in off
    assert "00:00:01" in off
    assert "4 changes" in behind
    assert silent.startswith("did not answer: bob")
