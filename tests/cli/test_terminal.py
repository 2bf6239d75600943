"""Commands in a real terminal: they fit 80 x 24 and 200 columns, and leave it as it was.

Not covered: what is drawn for which numbers (tests/unit/cli/test_top_view.py, test_terminal.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.cli.conftest import Run
from tests.patience import PATIENCE_SECONDS

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_terminal(url: str, *arguments: str, columns: int, rows: int, keys: bytes = b"") -> str:
    """All that `dejaq` writes in a terminal of this size; keys are pressed once it has begun."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    settings = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "dejaqueue", *arguments],
        stdin=its, stdout=its, stderr=its, start_new_session=True,
        env=settings | {"TERM": "xterm-256color", "DEJAQ_URL": url,
                        "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    os.close(its)
    said, end = b"", time.monotonic() + PATIENCE_SECONDS
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([ours], [], [], 1)
            if not ready:
                if keys and b"q:quit" in said and b"\x1b[?1049l" not in said:
                    os.write(ours, keys)  # again: what came before it listened is dropped
                continue
            with contextlib.suppress(OSError):  # Linux says so when the other side has closed
                piece = os.read(ours, 65_536)
                said += piece
                if piece:
                    continue
            break
        assert process.wait(PATIENCE_SECONDS) == 0, said
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
    return said.decode()


def plain(text: str) -> list[str]:
    """The lines, without colours."""
    return CODES.sub("", text).replace("\r", "").split("\n")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50)])
def test_top_fits_its_terminal__and_leaves_it_as_it_was(
    run: Run, url: str, columns: int, rows: int
) -> None:
    for n in range(30):
        run("topic", "create", f"topic-with-a-rather-long-name-{n:02}", "--max-attempts", "3")
    run("send", "topic-with-a-rather-long-name-07", "--text", "x")
    said = in_terminal(url, "top", "--interval", "1h", columns=columns, rows=rows, keys=b"q")
    assert "\x1b[?1049h" in said  # a screen of its own,
    assert said.rindex("\x1b[?1049l") > said.rindex("q:quit")  # which it leaves
    lines = plain(said)
    assert [line for line in lines if len(line) > columns] == []
    assert len(lines) <= rows
    assert any("1 messages are due and nobody consumes" in line for line in lines)
    assert "\x1b[1;31m" in said
    for arguments in (("topic", "list"), ("stats",), ("stats", "topic-with-a-rather-long-name-07")):
        said = in_terminal(url, *arguments, columns=columns, rows=rows)
        lines = plain(said)
        assert max(map(len, lines)) <= columns, arguments
        assert "topic-with-a-rather-long-name-07" in said.replace("…", ""), arguments
