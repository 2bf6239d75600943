"""Facts in two SQL tables: one row each, and one counter that orders every change.

Room: coordinator. Servers and what their failures mean are in connections/.
Holds: a change first takes the counter's row, so changes come one after the other and the fact's
revision is the counter's, also after a deletion. A ttl is the server's clock, read when the row is
taken; a fact whose time is over is not seen from that moment on, and deleted, which is a change,
by whoever notices first.
Limits: a ttl follows the server's wall clock. Bells ring within `poll_ms`; with PostgreSQL at once.
See: interface.py; connections/sql.py; docs/guides/coordinators.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from dejaqueue.connections.mysql import Mysql
from dejaqueue.connections.postgresql import Postgresql
from dejaqueue.connections.sql import (
    Connections,
    SqlConnection,
    SqlFailure,
    SqlServer,
    Verdict,
)
from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.counted import Channel, CountedChanges, Told
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import Locked, Unavailable

FACTS, COUNTER = "dejaq_facts", "dejaq_facts_counter"
CHANNEL = "dejaq_facts_changed"
ANSWER_S = 3.0
"""How long a server may be silent before it counts as gone."""
ROUNDING_MS = 2
"""A clock is read in whole milliseconds; a fact must not vanish early for that."""
CONNECT_S = 2
TRIES_S = 8.0
"""How long a change is tried again that the server gives up in favour of others."""

_NOW_MS: dict[type[SqlServer], str] = {
    Postgresql: "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)",
    Mysql: "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
    # Not julianday, a float whose rounding is worth a millisecond.
    Sqlite: "(CAST(strftime('%s', 'now') AS INTEGER) * 1000"
    " + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER))",
}

_Result = TypeVar("_Result")


def open_url(url: str) -> SqlCoordinator:
    """The coordinator of an SQL server's URL. Raises BadRequest, Refused, Unavailable."""
    scheme = url.partition(":")[0]
    server: SqlServer
    if scheme == "sqlite":
        server = Sqlite(url, exclusive=False)
    elif scheme in {"mysql", "mariadb"}:
        server = Mysql(url, answer_seconds_max=ANSWER_S)
    else:
        mark = "&" if "?" in url else "?"
        bound = "" if "connect_timeout=" in url else f"{mark}connect_timeout={CONNECT_S}"
        server = Postgresql(url + bound, answer_seconds_max=ANSWER_S)
    return SqlCoordinator(server)


class SqlCoordinator(Coordinator):
    """Facts in one database."""

    def __init__(self, server: SqlServer) -> None:
        self._server = server
        self._now_ms = _NOW_MS[type(server)]
        self._lives = f"(until_ms IS NULL OR until_ms > {self._now_ms})"
        self._listen: Callable[[], Channel] | None = None
        if isinstance(server, Postgresql) and not server.is_cockroach:
            self._listen = lambda: _Channel(server)
        self._bells = Bells()
        self._changes = CountedChanges(self._bells, self.count, self._listen, self.poll_ms)
        # A look that is asked again on a new connection may have waited for the server to be back.
        self._connections = Connections(server, on_broken=self._changes.ring_again)
        self._own: dict[str, int] = {}
        try:
            self._prepare()
        except BaseException:
            self._connections.close()
            raise

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""
        rows = self._ask(
            f"SELECT content, revision FROM {FACTS} WHERE name = ? AND {self._lives}",
            check_key(key),
        )
        return Fact(key, bytes(rows[0][0]), int(rows[0][1])) if rows else None

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""
        asked = f"SELECT name, content, revision FROM {FACTS} WHERE {self._lives}"
        if check_prefix(prefix):
            # Keys are ASCII: what begins so lies before the same with its last letter counted up.
            end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            rows = self._ask(f"{asked} AND name >= ? AND name < ?", prefix, end)
        else:
            rows = self._ask(asked)
        facts = [Fact(str(name), bytes(value), int(number)) for name, value, number in rows]
        return sorted(facts, key=lambda fact: fact.key)

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)

        def change(connection: SqlConnection, number: int, now_ms: int) -> int:
            self._compare(connection, key, revision)
            until_ms = None if ttl_ms is None else now_ms + ttl_ms + ROUNDING_MS
            connection.change(f"DELETE FROM {FACTS} WHERE name = ?", (key,))
            connection.change(
                f"INSERT INTO {FACTS} (name, content, revision, ttl_ms, until_ms) "
                "VALUES (?, ?, ?, ?, ?)",
                (key, value, number, ttl_ms, until_ms),
            )
            return number

        stored = self._change(key, change)
        self._own[key] = stored
        return stored

    def renew(self, key: str) -> bool:
        """Keep a fact that this coordinator put with a ttl; False if it is there no more."""
        mine = (check_key(key), self._own.get(key, 0))
        where = f"WHERE name = ? AND revision = ? AND {self._lives}"
        with self._named(), self._connections.lend() as connection:
            renewed = connection.change(
                f"UPDATE {FACTS} SET until_ms = {self._now_ms} + ttl_ms + {ROUNDING_MS} {where}",
                mine,
            )
            # A server may count only what it really altered; not so twice in one millisecond.
            return renewed > 0 or bool(connection.rows(f"SELECT 1 FROM {FACTS} {where}", mine))

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        check_key(key)

        def change(connection: SqlConnection, number: int, now_ms: int) -> bool:
            self._compare(connection, key, revision)
            return connection.change(f"DELETE FROM {FACTS} WHERE name = ?", (key,)) > 0

        return self._change(key, change)

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on the thread that asks for changes, after changes below the prefix."""
        return self.watch_keys(prefix, lambda _: bell())

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `watch`, and the bell is given the key of the fact that changed; None = any."""
        watch = self._bells.add_keyed(prefix, bell)
        self._changes.start()
        return watch

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish."""
        self._bells.close()
        self._changes.stop()
        self._connections.close()

    def count(self) -> int:
        """Delete what has vanished; the number of the last change. Raises Unavailable."""
        over = f"SELECT COUNT(*) FROM {FACTS} WHERE until_ms <= {self._now_ms}"
        number, vanished = self._ask(f"SELECT revision, ({over}) FROM {COUNTER} WHERE one = 1")[0]
        return self._change("", lambda _, number, __: number) if vanished else int(number)

    def _prepare(self) -> None:
        """Check the server, make the tables."""
        text, content = self._server.text_type, self._server.bytes_type
        ending = self._server.table_ending
        tables = (
            f"CREATE TABLE IF NOT EXISTS {FACTS} (name {text} NOT NULL PRIMARY KEY, "
            f"content {content} NOT NULL, revision BIGINT NOT NULL, ttl_ms BIGINT, "
            f"until_ms BIGINT){ending}",
            f"CREATE TABLE IF NOT EXISTS {COUNTER} (one INTEGER NOT NULL PRIMARY KEY, "
            f"revision BIGINT NOT NULL){ending}",
        )
        with self._named(), self._connections.lend() as connection:
            self.summary = self._server.check(connection)
            for table in tables:
                _make(connection, table)
            if not connection.rows(f"SELECT 1 FROM {COUNTER} WHERE one = 1"):
                _make(connection, f"INSERT INTO {COUNTER} (one, revision) VALUES (1, 0)")

    def _change(self, key: str, change: Callable[[SqlConnection, int, int], _Result]) -> _Result:
        """Do something as the one that changes facts now, with the next number and the time."""
        end = time.monotonic() + TRIES_S
        while True:
            try:
                with self._connections.transaction() as connection:
                    connection.change(f"UPDATE {COUNTER} SET revision = revision + 1 WHERE one = 1")
                    number, now_ms = connection.rows(
                        f"SELECT revision, {self._now_ms} FROM {COUNTER} WHERE one = 1"
                    )[0]
                    over = connection.change(f"DELETE FROM {FACTS} WHERE until_ms <= ?", (now_ms,))
                    result = change(connection, int(number), int(now_ms))
                    self._tell(connection, int(number), "" if over else key)
                return result
            except SqlFailure as failure:
                if failure.verdict is not Verdict.AGAIN or time.monotonic() > end:
                    raise failure.as_error(self._server.name) from failure
            except Locked as failure:
                raise Unavailable(str(failure)) from failure

    def _compare(self, connection: SqlConnection, key: str, revision: int | None) -> None:
        if revision is None:
            return
        rows = connection.rows(f"SELECT revision FROM {FACTS} WHERE name = ?", (key,))
        has = int(rows[0][0]) if rows else 0
        if has != revision:
            raise Conflict(f"{key} has revision {has}, expected {revision}")

    def _tell(self, connection: SqlConnection, number: int, key: str) -> None:
        if self._listen is not None:  # heard when the transaction is committed, and not otherwise
            connection.rows("SELECT pg_notify(?, ?)", (CHANNEL, f"{number} {key}"))

    def _ask(self, statement: str, *parameters: object) -> Sequence[tuple[Any, ...]]:
        with self._named():
            return self._connections.rows(statement, parameters)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Failures as who calls knows them."""
        try:
            yield
        except SqlFailure as failure:
            raise failure.as_error(self._server.name) from failure
        except Locked as failure:
            raise Unavailable(str(failure)) from failure


def _make(connection: SqlConnection, statement: str) -> None:
    """Make what may be made by another at the same moment: what is there already is fine."""
    for last in (*[False] * 4, True):
        try:
            connection.change(statement)
            return
        except SqlFailure as failure:
            if failure.verdict is Verdict.TAKEN and statement.startswith("INSERT"):
                return
            if last or failure.verdict not in {Verdict.TAKEN, Verdict.AGAIN}:
                raise


class _Channel:
    """What PostgreSQL tells of committed changes."""

    def __init__(self, server: Postgresql) -> None:
        self._name = server.name
        try:
            self._listener = server.listen(CHANNEL)
        except SqlFailure as failure:
            raise failure.as_error(self._name) from failure

    def hear(self, seconds: float) -> Told | None:
        """The next change that is told."""
        try:
            told = self._listener.hear(seconds)
        except SqlFailure as failure:
            raise failure.as_error(self._name) from failure
        if told is None:
            return None
        number, _, key = told.partition(" ")
        return Told(int(number), key)

    def close(self) -> None:
        """Hear no more."""
        self._listener.close()
