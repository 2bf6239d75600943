"""Covers: the units are such that systemd takes them, and call commands that there are; a broker
tells when it serves, reloads and stops.

Not covered: a machine that boots with it; what SIGHUP changes (test_serve.py).
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import click
import pytest

from dejaqueue.cli.main import main
from tests.cli.test_serve import Serve
from tests.patience import PATIENCE_SECONDS

UNITS = Path(__file__).resolve().parents[2] / "deploy/systemd"


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


PROGRAM = "/opt/dejaq/bin/dejaq"
SERVICES = ("dejaq.service", "dejaq-worker@mails.service", "dejaq-backup.service")


def text_of(unit: str) -> str:
    """What is in the file of a unit; those of a template have one file."""
    return (UNITS / re.sub("@.*[.]", "@.", unit)).read_text(encoding="utf-8")


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def verify(folder: Path, unit: str, more: str = "") -> subprocess.CompletedProcess[str]:
    for one in UNITS.iterdir():
        # Only the program is another one: systemd looks whether it is there.
        text = one.read_text(encoding="utf-8").replace(PROGRAM, "/bin/true")
        (folder / one.name).write_text(text, encoding="utf-8")
    path = folder / unit
    path.write_text(text_of(unit).replace(PROGRAM, "/bin/true") + more, encoding="utf-8")
    return analyze("verify", "--man=no", str(path))


@pytest.mark.may_skip
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("unit", [*SERVICES, "dejaq-backup.timer"])
def test_systemd_takes_the_units__and_finds_them_closed(unit: str, tmp_path: Path) -> None:
    found = verify(tmp_path, unit)
    mine = [line for line in found.stderr.splitlines() if str(tmp_path) in line or unit in line]
    assert (found.returncode, mine) == (0, []), found.stderr
    section = "Timer" if unit.endswith(".timer") else "Service"
    assert "Typo" in verify(tmp_path, unit, f"\n[{section}]\nTypo=notify\n").stderr
    if section == "Service":
        (tmp_path / unit).write_text(text_of(unit), encoding="utf-8")
        # 100 is open to everything; "OK" ends below 50.
        closed = analyze("security", "--offline=yes", "--threshold=25", str(tmp_path / unit))
        assert closed.returncode == 0, closed.stdout


@pytest.mark.parametrize("unit", SERVICES)
def test_units_call_the_command_as_it_is(unit: str) -> None:
    """Each line that it runs is a command with options and arguments that it takes."""
    lines = re.findall(rf"^Exec\w+={PROGRAM} (.*)$", text_of(unit), re.MULTILINE)
    assert lines
    for line in lines:
        words = [word for word in line.split() if word != "$DEJAQ_OPTIONS"]
        command: click.Command = main
        context = click.Context(main, info_name="dejaq")
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        command.make_context(command.name, words)  # raises where one is wrong, or missing


def test_the_timer_starts_the_backup() -> None:
    text = text_of("dejaq-backup.timer")
    assert "[Timer]" in text
    assert "Unit=" not in text, "it starts the service of its name"
    assert (UNITS / "dejaq-backup.service").exists()
