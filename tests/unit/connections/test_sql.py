"""Covers: connections are lent, and thrown away when they broke."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.connections.sql import (
    Connections,
    Row,
    SqlConnection,
    SqlFailure,
    SqlServer,
    Verdict,
)
from dejaqueue.connections.sql_urls import server_of
from dejaqueue.errors import Fenced, ResourceExhausted, Unavailable
from dejaqueue.journal.records.sql import SqlRecordStore


class FailingConnection(SqlConnection):
    """Fails as its server says, else does what a real one does."""

    def __init__(self, inner: SqlConnection, failures: list[Verdict]) -> None:
        self._inner, self._failures = inner, failures

    def _fail(self, statement: str) -> None:
        if self._failures and not statement.startswith(("CREATE", "PRAGMA")):
            verdict = self._failures.pop(0)
            self.broken = verdict is Verdict.UNKNOWN
            raise SqlFailure(verdict, "planned")

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        self._fail(statement)
        return self._inner.rows(statement, parameters)

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        self._fail(statement)
        return self._inner.change(statement, parameters)

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        return self._inner.stream(statement, parameters)

    def begin(self) -> None:
        self._inner.begin()

    def commit(self) -> None:
        self._fail("COMMIT")
        self._inner.commit()

    def roll_back(self) -> None:
        self._inner.roll_back()

    def close(self) -> None:
        """Left open: a file has one."""


class FailingServer(SqlServer):
    def __init__(self, path: Path) -> None:
        self.name = "failing"
        self.failures: list[Verdict] = []
        self.count = 0
        self._server = server_of(f"sqlite:///{path}/x.db")
        self._one = self._server.connect()

    def connect(self) -> SqlConnection:
        self.count += 1
        return FailingConnection(self._one, self.failures)

    def check(self, connection: SqlConnection) -> str:
        return "failing"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FailingServer]:
    made = FailingServer(tmp_path)
    yield made
    made._one.close()


def test_what_gave_way_is_tried_again_and_what_is_unknown_is_not(server: FailingServer) -> None:
    store = SqlRecordStore(server)
    log = store.open("topic", 0)
    server.failures += [Verdict.AGAIN] * 3
    log.append(0, [[b"one"]])
    server.failures += [Verdict.AGAIN, Verdict.UNKNOWN]
    with pytest.raises(Unavailable):
        log.append(1, [[b"two"]])
    server.failures += [Verdict.FULL]
    with pytest.raises(ResourceExhausted):
        log.append(1, [[b"two"]])
    server.failures += [Verdict.TAKEN]
    with pytest.raises(Fenced):
        log.append(1, [[b"two"]])
    server.failures += [Verdict.UNKNOWN]  # a read is asked again
    assert list(log.read(1, 9)) == [(1, b"one")]
    server.failures += [Verdict.UNKNOWN, Verdict.AGAIN]  # and so is what may happen twice
    store.put_object("name", b"content")
    assert store.get_object("name") == b"content"
    server.failures += [Verdict.AGAIN] * 1_000
    with pytest.raises(Unavailable):
        log.append(1, [[b"two"]])
    server.failures.clear()
    store.close()


def test_who_wants_to_know_is_told_of_a_broken_connection(server: FailingServer) -> None:
    told: list[int] = []
    connections = Connections(server, on_broken=lambda: told.append(len(told)))
    server.failures += [Verdict.AGAIN]
    assert connections.rows("SELECT 1") == [(1,)]
    assert told == []
    server.failures += [Verdict.UNKNOWN]
    assert connections.rows("SELECT 1") == [(1,)]  # asked again, and nobody would know
    assert told == [0]
    connections.close()


def test_a_broken_connection_takes_the_idle_ones_with_it(server: FailingServer) -> None:
    connections = Connections(server)
    with connections.lend() as one, connections.lend() as two:
        assert one is not two
    assert server.count == 2
    server.failures += [Verdict.WRONG]
    with pytest.raises(SqlFailure), connections.lend() as one:
        one.rows("SELECT 1")
    with connections.lend():
        assert server.count == 2
    server.failures += [Verdict.UNKNOWN]
    with pytest.raises(SqlFailure), connections.lend() as one:
        one.rows("SELECT 1")
    with connections.lend():
        assert server.count == 3
    connections.close()
    with pytest.raises(SqlFailure), connections.lend():
        pass
