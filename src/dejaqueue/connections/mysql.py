"""MariaDB and MySQL: connections, and the settings that say that a commit is durable.

Room: connections. The only file that knows PyMySQL.
Holds: `innodb_flush_log_at_trx_commit` is 1 and, where there is a binary log, `sync_binlog` is 1,
or the server is refused; tables are InnoDB's.
See: sql.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from dejaqueue.connections import extras
from dejaqueue.connections.sql import (
    ANSWER_SECONDS_MAX,
    Row,
    SqlConnection,
    SqlFailure,
    SqlServer,
    Verdict,
    warn,
)
from dejaqueue.errors import BadRequest, Refused

_CONNECT_SECONDS_MAX: Final = 5
_TAKEN: Final = {1062, 1586}
_AGAIN: Final = {1205, 1213, 1020}
_FULL: Final = {1021, 1114, 1041, 1037, 1038, 3675}
_GONE: Final = {0, 1053, 1927, 2006, 2013, 2055, 4031, 1077, 1079, 1080, 1184}
_PORT: Final = 3306
_RESERVE_BYTES: Final = 64 << 10
"""Of the longest packet, kept for the words of a statement."""


class _Connection(SqlConnection):
    def __init__(self, inner: Any, library: Any) -> None:
        self._inner, self._library = inner, library
        self._open = False

    def _failure(self, failure: Exception) -> SqlFailure:
        number = failure.args[0] if failure.args and isinstance(failure.args[0], int) else 0
        if number in _TAKEN:
            verdict = Verdict.TAKEN
        elif number in _AGAIN:
            verdict = Verdict.AGAIN
        elif number in _FULL:
            verdict = Verdict.FULL
        elif number in _GONE or not isinstance(failure, self._library.MySQLError):
            verdict, self.broken = Verdict.UNKNOWN, True
        else:
            verdict = Verdict.WRONG
        return SqlFailure(verdict, str(failure))

    def _run(self, statement: str, parameters: Sequence[Any], cursor: Any) -> Any:
        try:
            cursor.execute(_filled(statement, parameters))
        except (self._library.MySQLError, OSError) as failure:
            raise self._failure(failure) from failure
        return cursor

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return list(self._run(statement, parameters, self._inner.cursor()).fetchall())

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return int(self._run(statement, parameters, self._inner.cursor()).rowcount)

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        cursor = self._inner.cursor(self._library.cursors.SSCursor)
        try:
            self._run(statement, parameters, cursor)
            yield from cursor
        except (self._library.MySQLError, OSError) as failure:
            raise self._failure(failure) from failure
        finally:
            if not self.broken:
                cursor.close()

    def begin(self) -> None:
        self.change("START TRANSACTION")
        self._open = True

    def commit(self) -> None:
        self.change("COMMIT")
        self._open = False

    def roll_back(self) -> None:
        try:
            if self._open and not self.broken:
                self.change("ROLLBACK")
                self._open = False
        except SqlFailure:
            self.broken = True

    def close(self) -> None:
        try:
            self._inner.close()
        except (self._library.MySQLError, OSError):
            self.broken = True


def _filled(statement: str, parameters: Sequence[Any]) -> str:
    """The statement with its parameters; bytes as hexadecimal, which no quoting can go wrong with.

    It is also six times as fast as the library's own quoting of bytes.
    """
    parts = statement.split("?")
    if len(parts) != len(parameters) + 1:
        raise ValueError(f"{len(parameters)} parameters for {statement}")
    pieces = [parts[0]]
    for value, part in zip(parameters, parts[1:], strict=True):
        pieces += (_literal(value), part)
    return "".join(pieces)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        # A literal gives way to the collation of the column, the result of a function would not.
        return f"{'_ascii' if value.isascii() else '_utf8mb4'} X'{value.encode().hex()}'"
    return f"X'{bytes(value).hex()}'"


class Mysql(SqlServer):
    """A server of MariaDB or MySQL.

    Args:
        url: `mysql://user:password@host:port/database`; `?unix_socket=/path` instead of a port;
            `?ssl_ca=/path` for TLS with a server whose certificate it signs, and is for that
            host; `ssl_cert` and `ssl_key` are our own.

    Raises:
        BadRequest: PyMySQL is not installed, or the URL is none.
    """

    extra: ClassVar[str] = "mysql"
    bytes_type = "LONGBLOB"
    text_type = "VARCHAR(500) CHARACTER SET ascii COLLATE ascii_bin"
    from_nothing = " FROM DUAL"
    derived_rows = False
    table_ending = " ENGINE = InnoDB"

    def __init__(self, url: str, *, answer_seconds_max: float = ANSWER_SECONDS_MAX) -> None:
        self._library = extras.load("pymysql", self.extra, url)
        parts = urlsplit(url)
        database = parts.path.lstrip("/")
        given = dict(parse_qsl(parts.query))
        unknown = sorted(given.keys() - {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"})
        if not database or unknown or not (parts.hostname or given):
            wrong = unknown[0] if unknown else parts.path
            raise BadRequest("mysql url", "mysql://user@host:port/database", wrong)
        self.name = f"{parts.scheme}://{parts.hostname or ''}:{parts.port or _PORT}/{database}"
        self._arguments: dict[str, Any] = given | {
            "host": parts.hostname,
            "port": parts.port or _PORT,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": database,
            # Without it the library takes any certificate.
            **({"ssl_verify_identity": True} if "ssl_ca" in given else {}),
            "connect_timeout": _CONNECT_SECONDS_MAX,
            "read_timeout": answer_seconds_max,
            "write_timeout": answer_seconds_max,
            "autocommit": True,
            "charset": "utf8mb4",
            # Racing appends meet at the key; locks on the gaps between keys only make deadlocks.
            "init_command": "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        }

    def connect(self) -> SqlConnection:
        """See SqlServer.connect."""
        try:
            inner = self._library.connect(**self._arguments)
        except (self._library.MySQLError, OSError) as failure:
            raise SqlFailure(Verdict.UNKNOWN, f"{self.name}: {failure}") from failure
        return _Connection(inner, self._library)

    def check(self, connection: SqlConnection) -> str:
        """See SqlServer.check."""
        rows = connection.rows("SHOW VARIABLES")
        variables = {str(name): str(value) for name, value in rows}
        self._refuse(variables, "innodb_flush_log_at_trx_commit", "1")
        if variables.get("log_bin") == "ON":
            self._refuse(variables, "sync_binlog", "1")
        if variables.get("innodb_flush_method", "").lower() == "nosync":
            raise Refused(f"{self.name}: innodb_flush_method is nosync, so nothing is durable")
        if variables.get("innodb_doublewrite", "ON").upper() in ("OFF", "0"):
            warn(self.name, "innodb_doublewrite is off: a power cut may tear a page")
        if variables.get("wsrep_on", "OFF") == "ON":
            warn(self.name, "wsrep_on is ON: Galera has lost transactions that it acknowledged")
        # Bytes travel as hexadecimal, twice as long.
        packet = int(variables.get("max_allowed_packet", 1 << 24))
        self.statement_bytes_max = (packet - _RESERVE_BYTES) // 2
        return (
            f"{variables.get('version_comment', 'MySQL').split()[0]} {variables.get('version', '')}"
        )

    def _refuse(self, found: dict[str, str], name: str, needed: str) -> None:
        value = found.get(name)
        if value != needed:
            raise Refused(
                f"{self.name}: the server's setting {name} is {value}, so what it acknowledged is "
                f"lost when its machine fails; it must be {needed}"
            )
