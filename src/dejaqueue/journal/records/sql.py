"""Records in the tables of an SQL server: SQLite, PostgreSQL, CockroachDB, MariaDB.

    dejaq_log     (id, topic, partition)        a partition's log; its id is drawn, never used again
    dejaq_record  (log, number, content)        the key is the fence: two owners cannot both have it
    dejaq_object  (name, part, content)         snapshots, catalogue, documents

An append is one INSERT, which takes a place only if the number before it is the last one: a single
statement, whole or not at all. Two that race meet at the key, and one of them is Fenced.

Room: journal, one backend. Knows SQL; what servers differ in is in connections/.
Holds: the duties of interface.py; the last record of a log is never deleted, so that its number
stays; a serialization failure is tried again, a lost answer never.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from dejaqueue.connections.sql import (
    TRIES_MAX,
    Connections,
    Row,
    SqlConnection,
    SqlFailure,
    SqlServer,
    Verdict,
)
from dejaqueue.connections.sql_urls import server_of
from dejaqueue.errors import Fenced, Refused, ResourceExhausted, Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore

R = TypeVar("R")

RECORD_BYTES_MAX: Final = 1 << 20
OBJECT_PART_BYTES: Final = 1 << 20
READ_RECORDS: Final = 32
"""Records that one query asks for without knowing how large they are …"""
READ_BYTES: Final = 8 << 20
"""… and bytes of one that knows it, so that no answer is large and no cursor stays open."""
SIZED_RECORDS: Final = 4_096
"""Records of which one query asks how large they are."""
DROP_RECORDS: Final = 1_000
"""Records that one statement deletes: longer ones would be in the way of appends."""
_STATEMENT_PARTS_MAX: Final = 16
"""Records of one statement at most, as far as its bytes allow."""

_SELECT_LOG: Final = "SELECT id FROM dejaq_log WHERE topic = ? AND partition_number = ?"
_LAST: Final = "SELECT COALESCE(MAX(number), 0) FROM dejaq_record WHERE log = ?"
_READ: Final = (
    "SELECT number, content FROM dejaq_record WHERE log = ? AND number >= ? AND number < ? "
    "ORDER BY number"
)
_SIZES: Final = (
    "SELECT number, LENGTH(content) FROM dejaq_record WHERE log = ? AND number >= ? "
    "AND number < ? ORDER BY number"
)
_DROP: Final = "DELETE FROM dejaq_record WHERE log = ? AND number >= ? AND number < ?"
_PUT: Final = "INSERT INTO dejaq_object (name, part, content) VALUES (?, ?, ?)"
_FIRST: Final = "SELECT MIN(number) FROM dejaq_record WHERE log = ?"


def _tables(server: SqlServer) -> list[str]:
    return [
        f"CREATE TABLE IF NOT EXISTS dejaq_log (topic {server.text_type} NOT NULL, "
        f"partition_number INTEGER NOT NULL, id BIGINT NOT NULL, "
        f"PRIMARY KEY (topic, partition_number)){server.table_ending}",
        f"CREATE TABLE IF NOT EXISTS dejaq_record (log BIGINT NOT NULL, number BIGINT NOT NULL, "
        f"content {server.bytes_type} NOT NULL, PRIMARY KEY (log, number)){server.table_ending}",
        f"CREATE TABLE IF NOT EXISTS dejaq_object (name {server.text_type} NOT NULL, "
        f"part INTEGER NOT NULL, content {server.bytes_type} NOT NULL, "
        f"PRIMARY KEY (name, part)){server.table_ending}",
        *server.tuning("dejaq_record", "content"),
    ]


def _insert(server: SqlServer, count: int) -> str:
    """An append of `count` records: all of them after the last number, or none."""
    number = server.integer_cast.format("?")
    if count == 1:
        rows = f"SELECT {server.integer_cast.format('?')}, {number}, ?{server.from_nothing}"
    else:
        every = " UNION ALL ".join([f"SELECT {number} AS number, ? AS content"] * count)
        rows = f"SELECT ?, appended.number, appended.content FROM ({every}) AS appended"
    return f"INSERT INTO dejaq_record (log, number, content) {rows} WHERE ({_LAST}) = ?"


def _change(statement: str, connection: SqlConnection) -> int:
    return connection.change(statement)


class SqlRecords(RecordLog):
    """The records of one partition. Made by its store."""

    def __init__(self, store: SqlRecordStore, log_id: int, name: str) -> None:
        self._store, self._log, self._name = store, log_id, name
        self._closed = False

    def last(self) -> int:
        """See RecordLog.last."""
        self._check_usable()
        return int(self._store.rows(_LAST, (self._log,))[0][0])

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable(f"the log {self._name} is closed")

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """See RecordLog.append. One statement, or one transaction, as far as the server takes."""
        self._check_usable()
        number = after + 1
        for contents in self._store.portions(records):
            try:
                self._append(number, contents)
            except (Fenced, ResourceExhausted) as failure:
                if number == after + 1:
                    raise
                raise Unavailable(f"a part of an append is there: {failure}") from failure
            number += len(contents)

    def _append(self, number: int, contents: list[bytes]) -> None:
        def insert(connection: SqlConnection) -> int:
            return self._insert(connection, number, contents)

        def insert_each(connection: SqlConnection) -> int:
            connection.begin()
            try:
                for place, content in enumerate(contents):
                    if not self._insert(connection, number + place, [content]):
                        return 0
                connection.commit()
                return len(contents)
            finally:
                connection.roll_back()

        try:
            one = len(contents) == 1 or self._store.derived_rows
            inserted = self._store.run(insert if one else insert_each)
        except SqlFailure as failure:
            if failure.verdict is not Verdict.TAKEN:
                raise failure.as_error(self._store.name) from failure
            inserted = 0
        if inserted != len(contents):
            raise Fenced(f"{self._name}: record {number - 1} is not the last one")

    def _insert(self, connection: SqlConnection, number: int, contents: list[bytes]) -> int:
        parameters: list[object] = [self._log]
        for place, content in enumerate(contents):
            parameters += (number + place, content)
        statement = self._store.insert(len(contents))
        return connection.change(statement, [*parameters, self._log, number - 1])

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """See RecordLog.read."""
        self._check_usable()
        for start, stop in self._windows(first, end):
            for number, content in self._store.rows(_READ, (self._log, start, stop)):
                yield int(number), bytes(content)

    def _windows(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of numbers from `first` to before `end`, each of an answer that is not large: few
        of them, since whoever reads many records would wait for the server most of the time."""
        if end - first <= READ_RECORDS:
            yield first, end
            return
        for start in range(first, end, SIZED_RECORDS):
            stop = min(start + SIZED_RECORDS, end)
            byte_count = 0
            for number, size in self._store.rows(_SIZES, (self._log, start, stop)):
                if byte_count and byte_count + size > READ_BYTES:
                    yield start, number
                    start, byte_count = number, 0
                byte_count += size
            yield start, stop

    def drop_before(self, number: int) -> None:
        """See RecordLog.drop_before; the last one stays, so that its number does."""
        end = min(number, self.last())
        first = self._store.rows(_FIRST, (self._log,))[0][0]
        if first is None:
            return
        for start in range(int(first), end, DROP_RECORDS):
            parameters = (self._log, start, min(start + DROP_RECORDS, end))
            self._store.change(_DROP, parameters)

    def byte_count(self) -> int:
        """See RecordLog.byte_count."""
        statement = "SELECT COALESCE(SUM(LENGTH(content)), 0) FROM dejaq_record WHERE log = ?"
        return int(self._store.rows(statement, (self._log,))[0][0])

    def close(self) -> None:
        """See RecordLog.close; connections are the store's."""
        self._closed = True


class SqlRecordStore(RecordStore):
    """All record logs of a cluster in one SQL database.

    Args:
        server: see connections/sql_urls.py.

    Raises:
        Refused: its settings lose what it acknowledged, or the user lacks a right. Locked: another
            process has the file. Unavailable.
    """

    erases = True

    def __init__(self, server: SqlServer) -> None:
        self.name = server.name
        self._server = server
        self.derived_rows = server.derived_rows
        self._connections = Connections(server)
        self._inserts: dict[int, str] = {}
        self._guard = threading.Lock()
        try:
            self._prepare()
        except BaseException as failure:
            self._connections.close()
            if isinstance(failure, SqlFailure):
                refused = failure.verdict is Verdict.WRONG  # a right that is missing, mostly
                error = Refused(f"{self.name}: {failure}") if refused else None
                raise error or failure.as_error(self.name) from failure
            raise

    def _prepare(self) -> None:
        """Check the server's settings and make the tables."""
        with self._connections.lend() as connection:
            self.summary = self._server.check(connection)
        self.record_bytes_max = min(RECORD_BYTES_MAX, self._server.statement_bytes_max)
        if not self._has_tables():
            for statement in _tables(self._server):
                self._make(statement)

    def _make(self, statement: str) -> None:
        """Make a table; once more if another broker is making it at this moment."""
        try:
            self.run(partial(_change, statement), lost_again=True)
        except SqlFailure as failure:
            if failure.verdict is not Verdict.TAKEN:
                raise
            self.run(partial(_change, statement), lost_again=True)

    def _has_tables(self) -> bool:
        """Whether they need not be made; to make them takes a right that not every user has."""
        try:
            self._connections.rows("SELECT name FROM dejaq_object WHERE part < 0")
            self._connections.rows("SELECT number FROM dejaq_record WHERE log = 0")
        except SqlFailure as failure:
            if failure.verdict is Verdict.WRONG:
                return False
            raise
        return True

    # --- statements ----------------------------------------------------------------------------

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SqlFailure as failure:
            raise failure.as_error(self.name) from failure

    def run(self, action: Callable[[SqlConnection], R], *, lost_again: bool = False) -> R:
        """Run an action; again, as long as the server gave way to another transaction.

        Args:
            lost_again: once more, too, if its answer was lost: for what may happen twice.

        Raises:
            SqlFailure.
        """
        for _ in range(TRIES_MAX - 1):
            try:
                with self._connections.lend() as connection:
                    return action(connection)
            except SqlFailure as failure:
                if failure.verdict is Verdict.UNKNOWN and lost_again:
                    lost_again = False
                elif failure.verdict is not Verdict.AGAIN:
                    raise
        with self._connections.lend() as connection:
            return action(connection)

    def rows(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """The rows of a query. Raises Unavailable."""
        with self._told():
            return self._connections.rows(statement, parameters)

    def change(self, statement: str, parameters: Sequence[object]) -> int:
        """How many rows a statement changed that may happen twice. Raises as RecordStore does."""
        with self._told():
            return self.run(lambda one: one.change(statement, parameters), lost_again=True)

    def _whole(self, action: Callable[[SqlConnection], None]) -> None:
        """Run statements as one, which may happen twice."""

        def transaction(connection: SqlConnection) -> None:
            connection.begin()
            try:
                action(connection)
                connection.commit()
            except BaseException:
                connection.roll_back()
                raise

        with self._told():
            self.run(transaction, lost_again=True)

    def insert(self, count: int) -> str:
        """The statement that appends `count` records."""
        statement = self._inserts.get(count)
        if statement is None:
            statement = self._inserts[count] = _insert(self._server, count)
        return statement

    def portions(self, records: Sequence[Sequence[Bytes]]) -> Iterator[list[bytes]]:
        """Records, each joined, in portions that one statement takes."""
        part: list[bytes] = []
        byte_count = 0
        for pieces in records:
            content = b"".join(pieces)
            full = byte_count + len(content) > self._server.statement_bytes_max
            if part and (full or len(part) == _STATEMENT_PARTS_MAX):
                yield part
                part, byte_count = [], 0
            part.append(content)
            byte_count += len(content)
        yield part

    # --- logs ----------------------------------------------------------------------------------

    def open(self, topic: str, partition: int) -> SqlRecords:
        """See RecordStore.open."""
        with self._told():
            rows = self._connections.rows(_SELECT_LOG, (topic, partition))
            if not rows:
                self._create(topic, partition)
                rows = self._connections.rows(_SELECT_LOG, (topic, partition))
        if not rows:
            raise Unavailable(f"{self.name}: {topic}/{partition} was dropped just now")
        return SqlRecords(self, int(rows[0][0]), f"{topic}/{partition}")

    def _create(self, topic: str, partition: int) -> None:
        statement = "INSERT INTO dejaq_log (topic, partition_number, id) VALUES (?, ?, ?)"
        parameters = (topic, partition, secrets.randbits(62))
        try:
            self.run(lambda connection: connection.change(statement, parameters))
        except SqlFailure as failure:
            if failure.verdict is not Verdict.TAKEN:
                raise

    def drop(self, topic: str) -> None:
        """See RecordStore.drop. An owner that still appends to it is fenced."""
        rows = self.rows("SELECT id FROM dejaq_log WHERE topic = ?", (topic,))
        self.change("DELETE FROM dejaq_log WHERE topic = ?", (topic,))
        for (log_id,) in rows:
            self.change("DELETE FROM dejaq_record WHERE log = ?", (log_id,))

    # --- objects -------------------------------------------------------------------------------

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """See RecordStore.put_object."""
        view = memoryview(content).cast("B") if len(content) else memoryview(b"")
        part_bytes = min(OBJECT_PART_BYTES, self._server.statement_bytes_max)
        starts = range(0, max(len(view), 1), part_bytes)
        parts = [bytes(view[start : start + part_bytes]) for start in starts]

        def replace(connection: SqlConnection) -> None:
            connection.change("DELETE FROM dejaq_object WHERE name = ?", (name,))
            for number, part in enumerate(parts):
                try:
                    connection.change(_PUT, (name, number, part))
                except SqlFailure as failure:
                    if failure.verdict is not Verdict.TAKEN:
                        raise
                    # Somebody else put the same name at the same time: that one first, then this.
                    raise SqlFailure(Verdict.AGAIN, str(failure)) from failure

        self._whole(replace)

    def get_object(self, name: str) -> bytes | None:
        """See RecordStore.get_object."""
        statement = "SELECT content FROM dejaq_object WHERE name = ? ORDER BY part"
        rows = self.rows(statement, (name,))
        return b"".join(bytes(content) for (content,) in rows) if rows else None

    def get_objects(self, names: Sequence[str]) -> dict[str, bytes]:
        """See RecordStore.get_objects: one statement."""
        found: dict[str, list[bytes]] = {}
        if names:
            places = ", ".join("?" * len(names))
            statement = (
                f"SELECT name, content FROM dejaq_object WHERE name IN ({places}) "
                f"ORDER BY name, part"
            )
            for name, content in self.rows(statement, names):
                found.setdefault(str(name), []).append(bytes(content))
        return {name: b"".join(parts) for name, parts in found.items()}

    def object_names(self, prefix: str) -> list[str]:
        """See RecordStore.object_names."""
        statement = (
            "SELECT name FROM dejaq_object WHERE part = 0 AND name >= ? AND name < ? ORDER BY name"
        )
        rows = self.rows(statement, (prefix, prefix + "\x7f"))
        return [str(name) for (name,) in rows]

    def drop_objects(self, names: Sequence[str]) -> None:
        """See RecordStore.drop_objects."""
        if not names:
            return

        def drop(connection: SqlConnection) -> None:
            for name in names:
                connection.change("DELETE FROM dejaq_object WHERE name = ?", (name,))

        self._whole(drop)

    def overwrite_deleted(self) -> None:
        """See RecordStore.overwrite_deleted."""
        with self._told():
            self.run(self._server.overwrite_deleted, lost_again=True)

    def close(self) -> None:
        """See RecordStore.close."""
        self._connections.close()


def open_records(url: str) -> SqlRecordStore:
    """The records behind sqlite:///path, postgresql://, cockroachdb:// or mysql://."""
    return SqlRecordStore(server_of(url))
