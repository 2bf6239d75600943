"""Covers: what a file of topics may say, and the sentences about what it may not.

Not covered: what a broker makes of it (test_apply.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.cli.declaration import Declaration, read_declarations
from dejaqueue.errors import BadRequest


def read(tmp_path: Path, text: str) -> tuple[list[Declaration], list[str]]:
    file = tmp_path / "topics.toml"
    file.write_text(text, encoding="utf-8")
    declared, problems = read_declarations(file)
    return declared, [str(problem) for problem in problems]


def test_what_is_said_is_told_from_what_is_default(tmp_path: Path) -> None:
    text = '[topics.a]\npartitions = "auto"\nbackoff_ms = "1.5s"\n[topics.a.weights]\nvip = 3\n'
    [declared], problems = read(tmp_path, text)
    assert problems == []
    assert declared.said == {"auto_partitions", "backoff_ms", "weights"}
    topic = declared.topic
    assert (topic.partitions, topic.auto_partitions, topic.backoff_ms) == (1, True, 1_500)
    assert (topic.weights, topic.lease_ms) == ({"vip": 3}, 30_000)


def test_an_entry_has_instants_as_toml_or_text_has_them(tmp_path: Path) -> None:
    text = (
        '[topics.c]\nkind = "cron"\n[topics.c.entries.e]\ncron = "* * * * *"\n'
        "start = 2026-12-24T18:00:00Z\nend = '2027-01-01T00:00:00+01:00'\njitter_ms = '1m'\n"
        "tags = ['x']\nheaders = {a = 'b'}\npaused = true\n"
    )
    [declared], problems = read(tmp_path, text)
    assert problems == []
    entry = declared.entries["e"]
    assert (entry.start_ms, entry.end_ms) == (1_798_135_200_000, 1_798_758_000_000)
    assert (entry.jitter_ms, entry.tags, entry.headers) == (60_000, ("x",), {"a": "b"})
    assert "entries.e.paused" in declared.said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[topics.a]\nlease = 5", "topics.a: topic.lease: one of name, kind,"),
        ("[topics.a]\nlease_ms = '5'", "topics.a: topic.lease_ms: a time needs its unit"),
        ("[topics.a]\nlease_ms = 5", "topics.a: topic.lease_ms: a whole number from"),
        ("[topics]\na = 1", "topics.a: topic: a table of settings"),
        ("[topics.a.b]\nlease_ms = 1000", 'a name that has dots is quoted: [topics."a.b"]'),
        ("[topics.a.entries.e]\ncron = '* * * * *'", 'a topic with kind = "cron", got: \'time'),
        ("[topics.a]\nkind = 'cron'\nentries = 1", "tables [topics.NAME.entries.ENTRY]"),
        ("[topics.a]\nkind = 'cron'\n[topics.a.entries]\ne = 1", "entry e: a table of fields"),
        ("[topics.a]\nkind = 'cron'\n[topics.a.entries.e]\nnext_ms = 1", "entry.next_ms: one of"),
        ("[topics.a]\nkind = 'cron'\n[topics.a.entries.e]\npayload = 1", "entry.payload: a text"),
        ("[topics.a]\nkind = 'cron'\n[topics.a.entries.e]\nzone = 'UTC'", "either cron or every"),
        (
            "[topics.a]\nkind = 'cron'\n[topics.a.entries.e]\ncron = '* * * * *'\nstart = 'now'",
            "entry.start_ms: an instant is like",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    declared, problems = read(tmp_path, text + "\n[topics.right]\n")
    assert [one.topic.name for one in declared] == ["right"]
    assert told in problems[0], problems


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a table [topics.NAME] for each topic"),
        ("topics = 1", "a table [topics.NAME] for each topic"),
        ("[server]\nport = 1", "tables [topics.NAME] alone, got: 'server'"),
        ("[topics", "TOML ("),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(tmp_path, text)
    assert told in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="a file that can be read"):
        read_declarations(tmp_path / "none.toml")
