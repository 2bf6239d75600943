"""`dejaq send --file` and `dejaq consume --save`: files as payloads, and payloads as files.

Not covered: what does not fit into a message (tests/integration/test_streamed_payloads.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dejaqueue.cli.streaming import progress_bar
from tests.cli.conftest import Run, invoke


def test_a_file_is_a_payload_and_a_payload_a_file(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "t")
    source, folder = tmp_path / "source", tmp_path / "saved" / "here"
    source.write_bytes(b"\xff\x00content")
    shown = run("send", "t", "--file", str(source), "--key", "k").stdout.strip()
    saved = run("consume", "t", "--save", str(folder), "--max", "1").stdout.strip()
    assert saved == str(folder / shown)
    assert Path(saved).read_bytes() == b"\xff\x00content"
    assert [path.name for path in folder.iterdir()] == [shown]
    assert run("stats", "t", "--json").stdout
    run("send", "t", "--file", "-", stdin=b"from a pipe")
    line = run("consume", "t", "--save", str(folder), "--max", "1", "--json").stdout
    values = json.loads(line)
    assert values["bytes"] == 11
    assert Path(values["path"]).read_bytes() == b"from a pipe"


def test_what_does_not_go_together_is_refused() -> None:
    nobody = "dejaq://127.0.0.1:1"
    found = invoke("send", "t", "--file", "a", "--text", "b", url=nobody)
    assert (found.exit_code, "one of them" in found.stderr) == (2, True)
    found = invoke("send", "t", "--file", "/no/such/file", url=nobody)
    assert (found.exit_code, "cannot read /no/such/file" in found.stderr) == (2, True)
    found = invoke("consume", "t", "--save", "a", "--no-ack", url=nobody)
    assert (found.exit_code, "--save or --no-ack" in found.stderr) == (2, True)


def test_without_a_terminal_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("x", None) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")
