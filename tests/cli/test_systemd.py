"""Covers: the unit is one that systemd takes, and a broker tells when it serves, reloads and stops.

Not covered: a machine that boots with it; what SIGHUP changes (test_serve.py).
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_serve import Serve
from tests.patience import PATIENCE_SECONDS

UNIT = Path(__file__).resolve().parents[2] / "deploy/systemd/dejaq.service"


def test_systemd_is_told_each_step(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_SECONDS)
        served = Serve(
            *("--data", "memory:", "--port", "0", "--json"),
            cwd=tmp_path,
            NOTIFY_SOCKET=str(tmp_path / "notify"),
        )
        try:
            told = [systemd.recv(1_000).decode()]
            url = served.where()["url"]
            served.process.send_signal(signal.SIGHUP)
            told += [systemd.recv(1_000).decode() for _ in range(2)]
        finally:
            status, _ = served.end(signal.SIGTERM)
        told.append(systemd.recv(1_000).decode())
    assert status == 0
    assert told[0] == f"READY=1\nSTATUS=serving {url}"
    states = [text.partition("\n")[0] for text in told[1:]]
    assert states == ["RELOADING=1", "READY=1", "STOPPING=1"]


@pytest.mark.may_skip
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_takes_the_unit__and_finds_it_closed(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # Only the program is another one: systemd looks whether it is there.
    text = UNIT.read_text(encoding="utf-8").replace("/opt/dejaq/bin/dejaq", "/bin/true")
    unit.write_text(text, encoding="utf-8")

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["systemd-analyze", *words, str(unit)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    found = ask("verify", "--man=no")
    mine = [line for line in found.stderr.splitlines() if UNIT.name in line]
    assert (found.returncode, mine) == (0, []), found.stderr
    # 100 is open to everything; "OK" ends below 50.
    closed = ask("security", "--offline=yes", "--threshold=25")
    assert closed.returncode == 0, closed.stdout
    unit.write_text(text + "\n[Service]\nTypo=notify\n", encoding="utf-8")
    assert "Typo" in ask("verify", "--man=no").stderr
