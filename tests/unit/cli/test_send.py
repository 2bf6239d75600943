"""`dejaq send`: which options go together, and how the outcome is said.

Not covered: the formats (test_sources.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, invoke


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--text a --due 0 --delay 1s", "--due or --delay"),
        ("--text a --expires 0 --ttl 1s", "--expires or --ttl"),
        ("file --text a", "--text, --value, --file or FILE"),
        ("--text a --value 1", "--text, --value, --file or FILE"),
        ("--value {", "--value: JSON"),
        ("file --key k", "--key goes with --text"),
        ("/no/such/file", "cannot read /no/such/file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: str, text: str) -> None:
    found = invoke("send", "t", *arguments.split(), url="dejaq://127.0.0.1:1")
    assert found.exit_code == 2
    assert text in found.stderr


def test_one_message_gives_its_id(run: Run) -> None:
    run("topic", "create", "t")
    shown = run("send", "t", "--text", "a", "--delay", "1h", "--priority", "3").stdout.strip()
    row = json.loads(run("peek", "t", "--json").stdout)
    assert (row["id"], row["payload"]) == (shown, "a")
    assert isinstance(json.loads(run("send", "t", "--text", "b", "--json").stdout)["id"], str)


def test_tags_are_those_of_the_message__or_of_each_that_has_none(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--text", "a", "--tag", "eu", "--tag", "mail", "--delay", "1h")
    rows = b'{"payload": "b"}\n'
    run("send", "t", "--format", "jsonl", "--tag", "uk", "--delay", "2h", stdin=rows)
    rows = b'{"payload": "c", "tags": ["own"]}\n'
    run("send", "t", "--format", "jsonl", "--tag", "uk", "--delay", "3h", stdin=rows)
    found = [json.loads(line) for line in run("peek", "t", "--json").stdout.splitlines()]
    tags = {row["payload"]: row["tags"] for row in found}
    assert tags == {"a": ["eu", "mail"], "b": ["uk"], "c": ["own"]}


def test_a_value_is_sent_as_compact_json(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--value", '{"to": "é", "n": [1, null]}', "--key", "k")
    row = json.loads(run("peek", "t", "--json").stdout)
    assert (row["key"], row["payload"]) == ("k", '{"to":"é","n":[1,null]}')


def test_many_messages_give_a_count(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "t")
    path = tmp_path / "rows.csv"
    path.write_text("name,due\nx,2100-01-01T00:00:00Z\ny,2100-01-01T00:00:00Z\n")
    assert run("send", "t", str(path), "--key-column", "name").stdout == "sent 2\n"
    assert run("send", "t", "-", stdin=b"a\n").stdout == "sent 1\n"


def test_rows_whose_key_lives_are_counted_apart__status_3(run: Run) -> None:
    run("topic", "create", "t")
    rows = b'{"payload": "1", "key": "k"}\n{"payload": "2", "key": "k"}\n'
    found = run("send", "t", "--format", "jsonl", "--delay", "1h", stdin=rows)
    assert (found.exit_code, found.stdout) == (3, "sent 1\nduplicate 1\n")
    found = run("send", "t", "--format", "jsonl", "--json", stdin=rows)
    assert json.loads(found.stdout) == {"sent": 0, "duplicate": 2}
