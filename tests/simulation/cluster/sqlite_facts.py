"""Facts in a file of SQLite, which reads its clock from the world. See coordinators.Facts.

SqlCoordinator is the product's, and so are its connections; the file can be out of reach, as a
server can.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from dejaqueue.connections.sql import Row, SqlConnection, SqlFailure, Verdict
from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.coordinator import sql
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.coordinator.sql import SqlCoordinator
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.ways import PlainWay


class SqliteFacts:
    """Facts in a file of SQLite, which reads its clock from the world."""

    travels = False

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        memory = "/dev/shm"
        directory = tempfile.mkdtemp(dir=memory if Path(memory).is_dir() else None)
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.path = Path(directory) / "facts.db"

    def reach(self, world: World) -> tuple[Coordinator, PlainWay, Callable[[], None]]:
        """See Facts.reach."""
        way = PlainWay()

        def make(url: str, *, exclusive: bool) -> _SimulatedSqlite:
            assert not exclusive
            return _SimulatedSqlite(url, self.clock, way)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sql, "Sqlite", make)
            coordinator = cast(SqlCoordinator, open_coordinator(f"sqlite:///{self.path}"))
        return coordinator, way, coordinator._connections.close

    def _look(self, statement: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(statement).fetchall()

    def find(self, prefix: str) -> list[Fact]:
        """See Facts.find. What has vanished and nobody noticed is among them."""
        rows = self._look(f"SELECT name, content, revision FROM {sql.FACTS} ORDER BY name")
        return [Fact(name, value, at) for name, value, at in rows if name.startswith(prefix)]

    def copy(self) -> Any:
        """See Facts.copy."""
        if not self.path.exists():
            return [], [(1, 0)]
        rows = self._look(f"SELECT * FROM {sql.FACTS}")
        return rows, self._look(f"SELECT * FROM {sql.COUNTER}")

    def restore(self, copy: Any) -> None:
        """See Facts.restore."""
        facts, counter = copy
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(f"DELETE FROM {sql.FACTS}")
            connection.execute(f"DELETE FROM {sql.COUNTER}")
            connection.executemany(f"INSERT INTO {sql.FACTS} VALUES (?, ?, ?, ?, ?)", facts)
            connection.executemany(f"INSERT INTO {sql.COUNTER} VALUES (?, ?)", counter)


class _SimulatedSqlite(Sqlite):
    """A file of SQLite that can be out of reach, as a server can."""

    def __init__(self, url: str, clock: SimulatedClock, way: PlainWay) -> None:
        super().__init__(url, exclusive=False)
        self._clock, self._way = clock, way

    def connect(self) -> SqlConnection:
        """See SqlServer.connect."""
        if self._way.is_cut:
            raise SqlFailure(Verdict.UNKNOWN, "out of reach")
        connection: Any = super().connect()
        connection._inner.create_function("strftime", 2, self._strftime)
        return _Line(connection, self._way)

    def _strftime(self, form: str, _: str) -> str:
        seconds, ms = divmod(self._clock.now_us() // 1_000, 1_000)
        return str(seconds) if form == "%s" else f"{seconds % 60:02}.{ms:03}"


sql._NOW_MS[_SimulatedSqlite] = sql._NOW_MS[Sqlite]


class _Line(SqlConnection):
    """A connection that breaks when its server is out of reach."""

    def __init__(self, inner: SqlConnection, way: PlainWay) -> None:
        self._inner, self._way = inner, way
        self._is_in_transaction = False

    def _check(self) -> None:
        if self._way.is_cut:
            self._break()

    def _break(self) -> None:
        self.broken = True
        raise SqlFailure(Verdict.UNKNOWN, "no answer")

    def _answer(self) -> None:
        if self._way.answers_lost and not self._is_in_transaction:
            self._way.answers_lost -= 1
            self._break()

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """See SqlConnection.rows."""
        self._check()
        return self._inner.rows(statement, parameters)

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """See SqlConnection.change."""
        self._check()
        count = self._inner.change(statement, parameters)
        self._answer()
        return count

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        """See SqlConnection.stream."""
        self._check()
        return self._inner.stream(statement, parameters)

    def begin(self) -> None:
        """See SqlConnection.begin."""
        self._check()
        self._inner.begin()
        self._is_in_transaction = True

    def commit(self) -> None:
        """See SqlConnection.commit."""
        self._inner.commit()
        self._is_in_transaction = False
        self._answer()

    def roll_back(self) -> None:
        """See SqlConnection.roll_back."""
        self._is_in_transaction = False
        self._inner.roll_back()

    def close(self) -> None:
        """See SqlConnection.close."""
        self._inner.close()
