"""Covers: a MariaDB's URL, its settings, how parameters are written, what its errors mean.

Not covered: a real server, and its locks (tests/conformance/test_sql.py, test_durable_settings.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.connections.mysql import Mysql
from dejaqueue.connections.sql import Row, SqlConnection, SqlFailure, Verdict
from dejaqueue.errors import BadRequest, Refused

pymysql = pytest.importorskip("pymysql")

DURABLE = {
    "innodb_flush_log_at_trx_commit": "1",
    "log_bin": "ON",
    "sync_binlog": "1",
    "max_allowed_packet": str(1 << 24),
    "version_comment": "MariaDB Server",
    "version": "11.4.2",
}


class Cursor:
    """Runs nothing: fails as the test says, or has the rows that it says."""

    rowcount = 3

    def __init__(self, server: Inner) -> None:
        self._server = server

    def execute(self, statement: str) -> None:
        self._server.statements.append(statement)
        if self._server.failures:
            raise self._server.failures.pop(0)

    def fetchall(self) -> list[Row]:
        return self._server.rows

    def close(self) -> None:
        self._server.closed_cursors += 1

    def __iter__(self) -> Any:
        return iter(self._server.rows)


class Inner:
    """A connection of the library."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.failures: list[Exception] = []
        self.rows: list[Row] = []
        self.closed_cursors = 0

    def cursor(self, kind: object = None) -> Cursor:
        return Cursor(self)

    def close(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, inner: Inner) -> Mysql:
    def connect(**arguments: Any) -> Inner:
        inner.arguments = arguments  # type: ignore[attr-defined]
        if inner.failures:
            raise inner.failures.pop(0)
        return inner

    monkeypatch.setattr(pymysql, "connect", connect)
    return Mysql("mysql://me:p%40ss@db.example:3307/queue")


@pytest.fixture
def connection(server: Mysql) -> SqlConnection:
    return server.connect()


# --- the URL


def test_a_url_says_where_and_as_whom(server: Mysql, inner: Inner) -> None:
    server.connect()
    told: dict[str, Any] = inner.arguments  # type: ignore[attr-defined]
    wanted = {"host": "db.example", "port": 3307, "user": "me", "password": "p@ss"}
    assert {name: told[name] for name in wanted} == wanted
    assert told["database"] == "queue"
    assert told["autocommit"] is True


def test_the_name_has_no_secrets(server: Mysql) -> None:
    assert server.name == "mysql://db.example:3307/queue"


def test_a_silent_server_is_not_waited_for_for_ever(server: Mysql, inner: Inner) -> None:
    server.connect()
    told: dict[str, Any] = inner.arguments  # type: ignore[attr-defined]
    assert all(told[f"{what}_timeout"] for what in ("connect", "read", "write"))


def test_a_certificate_that_is_asked_for_is_for_that_host(
    monkeypatch: pytest.MonkeyPatch, inner: Inner
) -> None:
    """The library takes any certificate of the authority, if it is not told to look."""
    told: list[dict[str, Any]] = []

    def connect(**arguments: Any) -> Inner:
        told.append(arguments)
        return inner

    monkeypatch.setattr(pymysql, "connect", connect)
    Mysql("mysql://h/d?ssl_ca=ca.pem").connect()
    Mysql("mysql://h/d").connect()
    assert [one.get("ssl_verify_identity") for one in told] == [True, None]


@pytest.mark.parametrize(
    "url",
    ["mysql://h", "mysql://h/", "mysql:///d", "mysql://h/d?ssl=true", "mysql://h/d?autocommit=0"],
)
def test_a_url_without_a_host_or_a_database_or_with_words_of_its_own_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="mysql url"):
        Mysql(url)


def test_nobody_there_leaves_open_what_happened(server: Mysql, inner: Inner) -> None:
    inner.failures = [pymysql.err.OperationalError(2003, "cannot connect")]
    with pytest.raises(
        SqlFailure, match=r"mysql://db.example:3307/queue: .*cannot connect"
    ) as told:
        server.connect()
    assert told.value.verdict is Verdict.UNKNOWN


# --- parameters


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "NULL"),
        (-5, "-5"),
        (True, "1"),
        ("a'b", "_ascii X'612762'"),
        ("é", "_utf8mb4 X'c3a9'"),
        ("", "_ascii X''"),
        (b"\x00'\\?", "X'00275c3f'"),
        (memoryview(b"ab"), "X'6162'"),
    ],
)
def test_a_parameter_is_written_so_that_no_quoting_can_go_wrong(
    connection: SqlConnection, inner: Inner, value: object, written: str
) -> None:
    connection.change("UPDATE t SET x = ? WHERE y = 1", (value,))
    assert inner.statements[-1] == f"UPDATE t SET x = {written} WHERE y = 1"


def test_parameters_are_put_in_one_by_one__a_mark_in_a_value_is_none(
    connection: SqlConnection, inner: Inner
) -> None:
    connection.change("? ? ?", (1, "?", 3))
    assert inner.statements[-1] == "1 _ascii X'3f' 3"


@pytest.mark.parametrize("parameters", [(), (1, 2)])
def test_too_few_or_too_many_parameters_are_a_fault_of_ours(
    connection: SqlConnection, parameters: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="parameters for"):
        connection.change("UPDATE t SET x = ?", parameters)


# --- what an error means


@pytest.mark.parametrize(
    ("number", "verdict", "is_broken"),
    [
        (1062, Verdict.TAKEN, False),
        (1205, Verdict.AGAIN, False),
        (1213, Verdict.AGAIN, False),
        (1114, Verdict.FULL, False),
        (1146, Verdict.WRONG, False),
        (2006, Verdict.UNKNOWN, True),
        (2013, Verdict.UNKNOWN, True),
        (0, Verdict.UNKNOWN, True),
    ],
)
def test_an_error_says_whether_the_statement_was_done(
    connection: SqlConnection, inner: Inner, number: int, verdict: Verdict, is_broken: bool
) -> None:
    inner.failures = [pymysql.err.OperationalError(number, "text")]
    with pytest.raises(SqlFailure) as told:
        connection.change("INSERT INTO t VALUES (1)")
    assert (told.value.verdict, connection.broken) == (verdict, is_broken)


def test_an_error_of_the_network_leaves_open_what_happened(
    connection: SqlConnection, inner: Inner
) -> None:
    inner.failures = [ConnectionResetError(104, "reset")]
    with pytest.raises(SqlFailure) as told:
        connection.rows("SELECT 1")
    assert told.value.verdict is Verdict.UNKNOWN
    assert connection.broken


def test_a_broken_stream_is_not_read_to_its_end(connection: SqlConnection, inner: Inner) -> None:
    """Closing its cursor would read all that is still to come."""
    inner.rows = [(1,), (2,)]
    assert list(connection.stream("SELECT x FROM t")) == [(1,), (2,)]
    assert inner.closed_cursors == 1
    inner.failures = [pymysql.err.OperationalError(2013, "lost")]
    with pytest.raises(SqlFailure):
        list(connection.stream("SELECT x FROM t"))
    assert inner.closed_cursors == 1


def test_only_what_was_begun_is_rolled_back(connection: SqlConnection, inner: Inner) -> None:
    connection.roll_back()
    assert inner.statements == []
    connection.begin()
    connection.commit()
    connection.roll_back()
    assert inner.statements == ["START TRANSACTION", "COMMIT"]
    connection.begin()
    connection.roll_back()
    assert inner.statements[-1] == "ROLLBACK"


def test_a_rollback_and_a_close_that_fail_break_the_connection_and_raise_nothing(
    connection: SqlConnection, inner: Inner
) -> None:
    connection.begin()
    inner.failures = [pymysql.err.OperationalError(1064, "wrong")]
    connection.roll_back()
    assert connection.broken
    inner.failures = [OSError("gone")]
    connection.close()


# --- the server's settings


def checked(server: Mysql, inner: Inner, **changed: str | None) -> str:
    found = {name: value for name, value in (DURABLE | changed).items() if value is not None}
    inner.rows = list(found.items())
    return server.check(server.connect())


def test_a_durable_server_is_told_by_name(server: Mysql, inner: Inner) -> None:
    assert checked(server, inner) == "MariaDB 11.4.2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("innodb_flush_log_at_trx_commit", "2"),
        ("innodb_flush_log_at_trx_commit", "0"),
        ("innodb_flush_log_at_trx_commit", None),
        ("sync_binlog", "0"),
        ("innodb_flush_method", "nosync"),
    ],
)
def test_a_server_that_loses_what_it_acknowledged_is_refused_by_the_name_of_its_setting(
    server: Mysql, inner: Inner, name: str, value: str | None
) -> None:
    with pytest.raises(Refused, match=rf"mysql://db.example:3307/queue: .*{name} is {value}"):
        checked(server, inner, **{name: value})


def test_the_binary_log_need_not_be_synced_where_there_is_none(server: Mysql, inner: Inner) -> None:
    assert checked(server, inner, log_bin="OFF", sync_binlog="0")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("innodb_doublewrite", "OFF", "a power cut may tear a page"),
        ("wsrep_on", "ON", "Galera has lost transactions"),
    ],
)
def test_what_may_lose_a_little_is_said_loudly(
    server: Mysql,
    inner: Inner,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: str,
    text: str,
) -> None:
    checked(server, inner, **{name: value})
    assert text in caplog.text


def test_a_statement_fits_into_a_packet__written_twice_as_long(server: Mysql, inner: Inner) -> None:
    checked(server, inner, max_allowed_packet=str(1 << 20))
    assert 2 * server.statement_bytes_max < 1 << 20
    assert server.statement_bytes_max > 1 << 18
