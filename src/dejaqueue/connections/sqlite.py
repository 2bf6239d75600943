"""SQLite: one file, one connection, written through to the disk with every transaction.

Room: connections.
Holds: write-ahead log with `synchronous = FULL`, read back after setting; what is deleted is
overwritten; one process at a time unless asked otherwise, and then every transaction takes the
right to write at its beginning.
See: sql.py. More than one connection to a file has corrupted it in SQLite before 3.51.3; the
exclusive one does not meet that.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dejaqueue.connections.sql import Row, SqlConnection, SqlFailure, SqlServer, Verdict
from dejaqueue.directories import make_directory, make_file
from dejaqueue.errors import BadRequest, Locked, Refused

_FULL: Final = 2
_BUSY_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.01

_VERDICTS: Final = {
    sqlite3.SQLITE_ERROR: Verdict.WRONG,
    sqlite3.SQLITE_FULL: Verdict.FULL,
    sqlite3.SQLITE_BUSY: Verdict.AGAIN,
    sqlite3.SQLITE_LOCKED: Verdict.AGAIN,
}


class _Connection(SqlConnection):
    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._inner.execute(statement, parameters)
        except sqlite3.IntegrityError as taken:
            raise SqlFailure(Verdict.TAKEN, str(taken)) from taken
        except sqlite3.Error as failure:
            raise self._failure(failure) from failure

    def _failure(self, failure: sqlite3.Error) -> SqlFailure:
        verdict = _VERDICTS.get(getattr(failure, "sqlite_errorcode", 0) & 0xFF)
        if verdict is None and isinstance(failure, sqlite3.ProgrammingError):
            verdict = Verdict.WRONG
        if verdict is None:
            self.broken = True
            verdict = Verdict.UNKNOWN
        return SqlFailure(verdict, str(failure))

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return list(self.stream(statement, parameters))

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return self._run(statement, parameters).rowcount

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        cursor = self._run(statement, parameters)
        try:
            yield from cursor
        except sqlite3.Error as failure:
            raise self._failure(failure) from failure
        finally:
            cursor.close()

    def begin(self) -> None:
        self._run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._run("COMMIT")

    def roll_back(self) -> None:
        try:
            if self._inner.in_transaction:
                self._inner.execute("ROLLBACK")
        except sqlite3.Error:
            self.broken = True

    def close(self) -> None:
        self._inner.close()


class Sqlite(SqlServer):
    """A file of SQLite.

    Args:
        url: `sqlite:///relative/path` or `sqlite:////absolute/path`.
        exclusive: this process has the file to itself from the first write on.

    Raises:
        BadRequest: not such a URL.
    """

    connections_max = 1
    statement_bytes_max = 900 << 20

    def __init__(self, url: str, *, exclusive: bool = True) -> None:
        path = url.removeprefix("sqlite:///")
        if path == url or not path or path.startswith(":"):
            raise BadRequest("sqlite url", "sqlite:///path of a file", url)
        self.path = Path(path).expanduser()
        self.name = f"sqlite:///{path}"
        self._exclusive = exclusive

    def connect(self) -> SqlConnection:
        """See SqlServer.connect. Raises Locked if another process has the file."""
        end = time.monotonic() + (0 if self._exclusive else _BUSY_SECONDS)
        while True:
            try:
                return self._connect_once()
            except Locked:  # SQLite does not wait where two make a file a WAL at once
                if time.monotonic() >= end:
                    raise
            threading.Event().wait(_LOOK_SECONDS)

    def _connect_once(self) -> SqlConnection:
        try:
            make_directory(self.path.parent)
            make_file(self.path)  # so that it and what SQLite puts beside it is this user's alone
            inner = sqlite3.connect(
                self.path,
                timeout=0 if self._exclusive else _BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=32,
            )
        except (OSError, sqlite3.Error) as failure:
            raise SqlFailure(Verdict.UNKNOWN, f"{self.name}: {failure}") from failure
        try:
            if self._exclusive:
                inner.execute("PRAGMA locking_mode = EXCLUSIVE")
            inner.execute("PRAGMA journal_mode = WAL").fetchone()
            inner.execute("PRAGMA synchronous = FULL")
            # What is deleted is overwritten with zeros, also in pages that become free.
            inner.execute("PRAGMA secure_delete = ON").fetchone()
            inner.execute("PRAGMA mmap_size = 0").fetchone()
            inner.execute("PRAGMA user_version").fetchone()
            if self._exclusive:  # taken now, so that a second process is told at its start
                inner.execute("BEGIN IMMEDIATE")
                inner.execute("COMMIT")
        except sqlite3.Error as failure:
            inner.close()
            if _VERDICTS.get(getattr(failure, "sqlite_errorcode", 0) & 0xFF) is Verdict.AGAIN:
                raise Locked(f"{self.name} is in use by another process") from failure
            raise SqlFailure(Verdict.UNKNOWN, f"{self.name}: {failure}") from failure
        return _Connection(inner)

    def check(self, connection: SqlConnection) -> str:
        """See SqlServer.check: what was set has to be what holds."""
        mode = connection.rows("PRAGMA journal_mode")[0][0]
        if mode != "wal":
            raise Refused(f"{self.name}: journal_mode is {mode}, it must be wal")
        synchronous = connection.rows("PRAGMA synchronous")[0][0]
        if synchronous < _FULL:
            raise Refused(f"{self.name}: synchronous is {synchronous}, it must be {_FULL} (FULL)")
        if connection.rows("PRAGMA secure_delete")[0][0] != 1:
            raise Refused(f"{self.name}: secure_delete is off, it must be on")
        return f"SQLite {sqlite3.sqlite_version}"

    def overwrite_deleted(self, connection: SqlConnection) -> None:
        """See SqlServer.overwrite_deleted: pages as they were before lie in the write-ahead log,
        and in the file until the log is copied into it."""
        busy = connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        if busy:
            raise SqlFailure(Verdict.AGAIN, "others use the write-ahead log: it stays for now")
