"""PostgreSQL and CockroachDB: connections, and the settings that say that a commit is durable.

Room: connections. The only file that knows psycopg.
Holds: `fsync`, `full_page_writes` and `synchronous_commit` are on, or the server is refused; a
serialization failure (SQLSTATE 40001) means that nothing was done; a connection that is lost or
silent means that nobody knows.
See: sql.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from dejaqueue.connections import extras
from dejaqueue.connections.sql import (
    ANSWER_SECONDS_MAX,
    Row,
    SqlConnection,
    SqlFailure,
    SqlServer,
    Verdict,
    warn,
    with_marks,
)
from dejaqueue.errors import BadRequest, Refused

if TYPE_CHECKING:
    import psycopg

R = TypeVar("R")

_CONNECT_SECONDS_MAX: Final = 5
_DURABLE: Final = ("fsync", "full_page_writes", "synchronous_commit")
_AGAIN: Final = {"40001", "40P01"}
# A row, a table or its type is there already. IF NOT EXISTS does not keep two brokers that make a
# table at the same moment from the latter.
_TAKEN: Final = {"23505", "42P07", "42710"}
_UNKNOWN: Final = {"40003", "57P01", "57P02", "57P03", "57014", "57P05"}
_FULL: Final = {"53100", "53200", "54000"}
_STREAM_ROWS: Final = 16


class _Connection(SqlConnection):
    def __init__(self, inner: psycopg.Connection[Row], errors: type[Exception]) -> None:
        self._inner = inner
        self._errors = errors

    def _failure(self, failure: Exception) -> SqlFailure:
        state = getattr(failure, "sqlstate", None) or ""
        self.broken = self._inner.closed or self._inner.broken
        if state in _AGAIN:
            verdict = Verdict.AGAIN
        elif state in _TAKEN:
            verdict = Verdict.TAKEN
        elif state in _FULL:
            verdict = Verdict.FULL
        elif state and state not in _UNKNOWN and not state.startswith("08"):
            verdict = Verdict.WRONG
        else:
            verdict = Verdict.UNKNOWN
            self.broken = True
        return SqlFailure(verdict, f"{state} {failure}".strip())

    def _run(self, statement: str, parameters: Sequence[Any]) -> psycopg.Cursor[Row]:
        try:
            return self._inner.execute(with_marks(statement, "%b"), parameters, binary=True)
        except self._errors as failure:
            raise self._failure(failure) from failure

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        cursor = self._run(statement, parameters)
        return cursor.fetchall() if cursor.description is not None else []

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return self._run(statement, parameters).rowcount

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        # Single-row mode of the library holds the whole answer's cursor open; a server-side one
        # gives a few rows at a time and works on CockroachDB as well.
        self.begin()
        try:
            with self._inner.cursor(name="dejaq", binary=True) as cursor:
                cursor.itersize = _STREAM_ROWS
                cursor.execute(with_marks(statement, "%b"), parameters)
                yield from cursor
            self.commit()
        except self._errors as failure:
            raise self._failure(failure) from failure
        finally:
            self.roll_back()

    def begin(self) -> None:
        self._run("BEGIN", ())

    def commit(self) -> None:
        self._run("COMMIT", ())

    def roll_back(self) -> None:
        try:
            if self._inner.info.transaction_status:
                self._inner.execute("ROLLBACK")
        except self._errors:
            self.broken = True

    def close(self) -> None:
        self._inner.close()


class Listener:
    """What is told on a channel of PostgreSQL; for one thread."""

    def __init__(self, inner: psycopg.Connection[Row], errors: type[Exception]) -> None:
        self._inner, self._errors = inner, errors

    def hear(self, seconds: float) -> str | None:
        """The next word, None if none comes in time. Raises SqlFailure."""
        try:
            for told in self._inner.notifies(timeout=seconds, stop_after=1):
                return told.payload
        except self._errors as failure:
            raise SqlFailure(Verdict.UNKNOWN, str(failure)) from failure
        return None

    def close(self) -> None:
        """Hear no more; twice is fine."""
        self._inner.close()


class Postgresql(SqlServer):
    """A server of PostgreSQL, or a cluster of CockroachDB.

    Args:
        url: `postgresql://user:password@host:port/database?…` as libpq takes it; the scheme
            `cockroachdb` is the same for CockroachDB.

    Raises:
        BadRequest: psycopg is not installed, or the URL is none.
    """

    extra: ClassVar[str] = "postgresql"
    bytes_type = "BYTEA"
    integer_cast = "CAST({} AS BIGINT)"
    statement_bytes_max = 64 << 20

    def __init__(self, url: str, *, answer_seconds_max: float = ANSWER_SECONDS_MAX) -> None:
        self._psycopg = extras.load("psycopg", self.extra, url)
        parts = urlsplit(url)
        self.is_cockroach = parts.scheme == "cockroachdb"
        if not parts.netloc and not parts.query:
            raise BadRequest("postgresql url", "postgresql://user@host:port/database", url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        given.setdefault("application_name", "dejaq")
        given.setdefault("connect_timeout", str(_CONNECT_SECONDS_MAX))
        self._url = urlunsplit(
            ("postgresql", parts.netloc, parts.path, urlencode(given, quote_via=quote), "")
        )
        host = parts.netloc.rpartition("@")[2]
        self.name = f"{parts.scheme}://{host}{parts.path}"
        self._class = _connection_class(self._psycopg, answer_seconds_max)

    def connect(self) -> SqlConnection:
        """See SqlServer.connect."""
        try:
            inner = self._class.connect(self._url, autocommit=True, prepare_threshold=2)
        except self._psycopg.Error as failure:
            raise SqlFailure(Verdict.UNKNOWN, f"{self.name}: {failure}") from failure
        return _Connection(inner, self._psycopg.Error)

    @property
    def text_type(self) -> str:  # type: ignore[override]
        """See SqlServer: CockroachDB compares bytes anyhow; a collated text equals no other."""
        return "TEXT" if self.is_cockroach else 'TEXT COLLATE "C"'

    def tuning(self, table: str, bytes_column: str) -> list[str]:
        """See SqlServer.tuning: payloads are not compressed again."""
        if self.is_cockroach:
            return []
        return [f"ALTER TABLE {table} ALTER COLUMN {bytes_column} SET STORAGE EXTERNAL"]

    def listen(self, channel: str) -> Listener:
        """Hear what is told on a channel, from now on. Raises SqlFailure."""
        try:
            # Not of the bounded class: silence is what a listener mostly hears.
            inner = self._psycopg.connect(self._url, autocommit=True)
            inner.execute(f"LISTEN {channel}")
        except self._psycopg.Error as failure:
            raise SqlFailure(Verdict.UNKNOWN, f"{self.name}: {failure}") from failure
        return Listener(inner, self._psycopg.Error)

    def check(self, connection: SqlConnection) -> str:
        """See SqlServer.check."""
        version = str(connection.rows("SELECT version()")[0][0])
        self.is_cockroach = "CockroachDB" in version
        if self.is_cockroach:
            self._check_cockroach(connection)
            return version.partition("(")[0].strip()
        for name in _DURABLE:
            value = str(connection.rows(f"SELECT current_setting('{name}')")[0][0])
            if value == "off":
                raise Refused(
                    f"{self.name}: the server's setting {name} is off, so what it acknowledged is "
                    f"lost when its machine fails; it must be on"
                )
            if value == "local":
                warn(self.name, f"{name} is local: a standby may lack what was acknowledged")
        if str(connection.rows("SELECT current_setting('data_sync_retry')")[0][0]) == "on":
            warn(self.name, "data_sync_retry is on: a failed write to its disk may go unnoticed")
        return " ".join(version.split()[:2])

    def _check_cockroach(self, connection: SqlConnection) -> None:
        name = "kv.raft_log.disable_synchronization_unsafe"
        try:
            value = str(connection.rows(f"SHOW CLUSTER SETTING {name}")[0][0]).lower()
        except SqlFailure as failure:
            if failure.verdict is not Verdict.WRONG:
                raise
            warn(self.name, f"the user may not see whether {name} is off")
            return
        if value in ("true", "on"):
            raise Refused(f"{self.name}: the cluster setting {name} is on; it must be off")


def _connection_class(library: Any, answer_seconds_max: float) -> Any:
    """A connection whose calls end when the server is silent for too long."""

    class Bounded(library.Connection):  # type: ignore[misc]
        def wait(
            self, gen: Generator[Any, Any, R], interval: float = 0.1, timeout: float | None = None
        ) -> R:
            try:
                found: R = super().wait(gen, interval, timeout or answer_seconds_max)
            except library.errors._WaitTimeout as silent:
                self.close()
                raise library.OperationalError("the server is silent") from silent
            return found

    return Bounded
