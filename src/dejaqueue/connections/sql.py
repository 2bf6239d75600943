"""SQL servers as DejaQ sees them: statements, rows, and what a failure means for who asked.

A statement is written once, with `?` for each parameter; bytes stay bytes. Each server is one file
beside this one; what it cannot do without is checked in `check`, by the name of its setting.

Room: connections. Knows no journal and no coordinator: both are built on this.
Holds: a failure says whether the statement may have been done (Verdict); nothing is sent twice,
reads apart; a connection that failed is closed, never used again.
See: postgresql.py, mysql.py, sqlite.py.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar, Final

from dejaqueue.errors import DejaQError, ResourceExhausted, Unavailable

log = logging.getLogger(__name__)

Row = tuple[Any, ...]

CONNECTIONS_MAX: Final = 8
"""Connections to one server at once; more calls than that wait for each other."""
ANSWER_SECONDS_MAX: Final = 10.0
"""A server that is silent for so long counts as gone; the outcome is then unknown."""
TRIES_MAX: Final = 50
"""How often a transaction is begun again because the server gave way to another one."""


class Verdict(Enum):
    """What a failure means."""

    TAKEN = "a row with this key is there; nothing was done"
    AGAIN = "the server gave way to another transaction; nothing was done"
    FULL = "the server has no room; nothing was done"
    BUSY = "somebody else has the database to himself"
    UNKNOWN = "no answer; the outcome is unknown"
    WRONG = "the server refuses the statement"


class SqlFailure(Exception):
    """A statement or a connection failed. Never leaves the rooms that use SQL."""

    def __init__(self, verdict: Verdict, text: str) -> None:
        super().__init__(f"{text} ({verdict.value})")
        self.verdict = verdict

    def as_error(self, name: str) -> DejaQError:
        """The same for who does not know of SQL.

        Args:
            name: of the server, without secrets.
        """
        if self.verdict is Verdict.FULL:
            return ResourceExhausted(f"{name}: {self}")
        return Unavailable(f"{name}: {self}")


class SqlConnection(ABC):
    """One connection. For one thread at a time; every call raises SqlFailure."""

    broken = False
    """True once a call failed in a way that leaves nobody sure of its state."""

    @abstractmethod
    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement by itself; its rows."""

    @abstractmethod
    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement by itself; how many rows it changed."""

    @abstractmethod
    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        """Run a query; its rows as they come, without having all in memory."""

    @abstractmethod
    def begin(self) -> None:
        """What follows happens as one, at `commit`."""

    @abstractmethod
    def commit(self) -> None:
        """Make what was done since `begin` happen; UNKNOWN if no answer came."""

    @abstractmethod
    def roll_back(self) -> None:
        """Forget what was done since `begin`. Does not fail: a broken connection is `broken`."""

    @abstractmethod
    def close(self) -> None:
        """Release it; twice is fine."""


class SqlServer(ABC):
    """A server, or a file, behind one URL.

    Attributes:
        name: for errors and status: scheme, host and database, without user and password.
        extra: of DejaQ, that brings its library.
        bytes_type, text_type: types of columns; a text is compared byte by byte.
        integer_cast: how a parameter in a SELECT list is said to be a 64-bit integer.
        from_nothing: what a SELECT without a table needs before its WHERE.
        derived_rows: large bytes come whole through a derived table (in MariaDB they lose length).
        table_ending: behind the `)` of a CREATE TABLE.
        statement_bytes_max: bytes of a statement with its parameters at most.
        connections_max: connections at once.
    """

    name: str
    extra: ClassVar[str] = ""
    bytes_type: str = "BLOB"
    text_type: str = "TEXT"
    integer_cast: str = "{}"
    from_nothing: str = ""
    derived_rows: bool = True
    table_ending: str = ""
    statement_bytes_max: int = 1 << 30
    connections_max: int = CONNECTIONS_MAX

    @abstractmethod
    def connect(self) -> SqlConnection:
        """A new connection, each statement by itself until `begin`. Raises SqlFailure."""

    def tuning(self, table: str, bytes_column: str) -> list[str]:
        """Statements that fit a new table to large values that are written once."""
        return []

    def overwrite_deleted(self, connection: SqlConnection) -> None:
        """Have no file with bytes of what was deleted, where this process writes the files.

        Raises:
            SqlFailure.
        """
        return

    @abstractmethod
    def check(self, connection: SqlConnection) -> str:
        """Refuse a server whose settings lose what it acknowledged; return its name and version.

        Raises:
            Refused: names the setting, what it is and what it has to be.
            SqlFailure.
        """


class Connections:
    """The connections to one server, lent to one thread at a time.

    Args:
        on_broken: called when a connection broke: the server may have been away meanwhile, though
            no call failed by it.

    Raises (all calls):
        SqlFailure.
    """

    def __init__(self, server: SqlServer, on_broken: Callable[[], None] | None = None) -> None:
        self.server = server
        self._on_broken = on_broken
        self._idle: list[SqlConnection] = []
        self._guard = threading.Lock()
        self._free = threading.BoundedSemaphore(server.connections_max)
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[SqlConnection]:
        """A connection, given back at the end."""
        with self._free:
            with self._guard:
                if self._closed:
                    raise SqlFailure(Verdict.UNKNOWN, f"{self.server.name} is closed here")
                idle = self._idle.pop() if self._idle else None
            connection = idle or self.server.connect()
            try:
                yield connection
            finally:
                self._take_back(connection)

    def _take_back(self, connection: SqlConnection) -> None:
        gone: list[SqlConnection] = []
        with self._guard:
            if connection.broken:
                # The others are most likely cut as well, by the same end of the server.
                gone, self._idle = [connection, *self._idle], []
            elif self._closed:
                gone = [connection]
            else:
                self._idle.append(connection)
        if connection.broken and self._on_broken is not None:
            self._on_broken()
        for one in gone:
            one.close()

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """A query by itself; asked again once, on a new connection, if its own was cut."""
        for last in (False, True):
            try:
                with self.lend() as connection:
                    return connection.rows(statement, parameters)
            except SqlFailure as failure:
                if last or failure.verdict not in (Verdict.UNKNOWN, Verdict.AGAIN):
                    raise
        raise AssertionError

    @contextmanager
    def transaction(self) -> Iterator[SqlConnection]:
        """What is done inside happens as one, or not at all, or UNKNOWN."""
        with self.lend() as connection:
            connection.begin()
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.roll_back()
                raise

    def close(self) -> None:
        """Close those that are idle now and the others when they come back; twice is fine."""
        with self._guard:
            self._closed = True
            gone, self._idle = self._idle, []
        for connection in gone:
            connection.close()


def with_marks(statement: str, mark: str) -> str:
    """A statement with the server's own mark for a parameter instead of `?`."""
    return statement.replace("?", mark)


def warn(name: str, text: str) -> None:
    """Say loudly that a server's setting may lose what was acknowledged."""
    log.warning("%s: %s", name, text)
