"""What people see in a terminal: it fits, times are told from now, states have a colour.

Not covered: a real terminal (tests/cli/test_terminal.py).
"""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from dejaqueue.cli import terminal

DAY_MS = 86_400_000
ROW: dict[str, Any] = {
    "name": "a" * 26, "state": "ready", "count": 1_234_567, "due": "1970-01-02T00:00:00.000Z",
    "is": True, "none": None, "share": 0.5,
}  # fmt: skip


def shown(columns: int, *, colours: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=columns,
        force_terminal=colours,
        color_system="standard" if colours else None,
    )
    console.print(terminal.table_of([ROW], columns, 0))
    return out.getvalue()


def test_a_table_fits__and_says_times_from_now() -> None:
    for columns in (80, 200):
        text = shown(columns)
        assert max(map(len, text.splitlines())) <= columns
        assert "1,234,567" in text
    assert "in 1 d" in shown(80)
    assert "in 1 d (1970-01-02T00:00:00.000Z)" in shown(200)
    assert "\x1b[33mready" in shown(80, colours=True)


def test_what_there_is_many_of_is_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal.print_facts({"scheduled": 5, "consumers": [], "partitions": [{"n": 1}, {"n": 2}]})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["partitions"] in lines
    assert [line for line in lines if line][-2:] == [["1"], ["2"]]
    assert ["scheduled", "5", "consumers", "-"] in lines


def test_a_pipe_is_no_terminal() -> None:
    assert not terminal.is_terminal()
    assert terminal.columns() > 0
