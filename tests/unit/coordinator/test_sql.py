"""Covers: an outage that no call failed by rings all bells. The rest is tests/conformance."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.connections.sql import Row, SqlConnection, SqlFailure, Verdict
from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.coordinator.sql import SqlCoordinator

SECONDS_MAX = 10.0


def test_a_server_that_was_away_during_a_look_rings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Sqlite(f"sqlite:///{tmp_path}/facts.db", exclusive=False)
    coordinator = SqlCoordinator(server)
    rang = threading.Event()
    coordinator.watch("", rang.set)
    assert rang.wait(SECONDS_MAX)  # it asks now
    breaks = threading.Event()
    connect = server.connect

    def breaks_once() -> SqlConnection:
        connection = connect()
        rows = connection.rows

        def look(statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
            if breaks.is_set() and "revision" in statement:
                breaks.clear()
                rang.clear()
                connection.broken = True
                raise SqlFailure(Verdict.UNKNOWN, "the server goes, and is back at once")
            return rows(statement, parameters)

        monkeypatch.setattr(connection, "rows", look, raising=True)
        return connection

    monkeypatch.setattr(server, "connect", breaks_once)
    # The connection from before goes; the next one is that which breaks.
    with coordinator._connections.lend() as connection:
        connection.broken = True
    breaks.set()
    deadline = threading.Event()
    while breaks.is_set():
        assert not deadline.wait(0.01)
    assert rang.wait(SECONDS_MAX)
    coordinator.close()
