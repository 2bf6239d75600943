"""Covers: what systemd hears, by both kinds of address, and that silence harms nobody.

Not covered: when it is told (tests/cli/test_systemd.py).
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from dejaqueue.cli.systemd import READY, SOCKET, tell_systemd


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_hears_it(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        name = str(tmp_path / "n")
        systemd.bind(name if kind == "path" else f"\0{name}")
        systemd.settimeout(1)
        monkeypatch.setenv(SOCKET, name if kind == "path" else f"@{name}")
        tell_systemd(READY, "serving")
        assert systemd.recv(100) == b"READY=1\nSTATUS=serving"


def test_where_nobody_listens_it_is_a_warning__where_nobody_asked_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.delenv(SOCKET, raising=False)
    tell_systemd(READY, "serving")
    assert caplog.messages == []
    monkeypatch.setenv(SOCKET, str(tmp_path / "none"))
    tell_systemd(READY, "serving")
    assert "cannot be told READY=1" in caplog.messages[0]
