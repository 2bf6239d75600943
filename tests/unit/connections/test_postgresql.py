"""Covers: a PostgreSQL's URL, its settings, what its errors mean, and when a connection is broken.

Not covered: a real server (tests/conformance/test_sql.py, test_durable_settings.py), and what is
told on a channel (tests/unit/coordinator/test_sql.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dejaqueue.connections.postgresql import Listener, Postgresql
from dejaqueue.connections.sql import Row, SqlConnection, SqlFailure, Verdict
from dejaqueue.errors import BadRequest, Refused

psycopg = pytest.importorskip("psycopg")

DURABLE = {
    "version()": "PostgreSQL 17.2 on x86_64-linux, compiled by somebody",
    "current_setting('fsync')": "on",
    "current_setting('full_page_writes')": "on",
    "current_setting('synchronous_commit')": "on",
    "current_setting('data_sync_retry')": "off",
}


def failure_of(state: str | None) -> Exception:
    failure: Exception = psycopg.OperationalError("text")
    failure.sqlstate = state  # type: ignore[attr-defined]
    return failure


class Inner:
    """A connection of the library that runs nothing."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.failures: list[Exception] = []
        self.answers: dict[str, str] = {}
        self.closed = self.broken = False
        self.info = SimpleNamespace(transaction_status=0)

    def execute(
        self, statement: str, parameters: Sequence[Any] = (), *, binary: bool = False
    ) -> Any:
        self.statements.append(statement)
        if self.failures:
            raise self.failures.pop(0)
        found: list[Row] = [
            (value,)
            for name, value in self.answers.items()
            if statement in (f"SELECT {name}", f"SHOW {name}")
        ]
        return SimpleNamespace(fetchall=lambda: found, description=found or None, rowcount=2)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def inner() -> Inner:
    return Inner()


def server_at(url: str, inner: Inner) -> Postgresql:
    server = Postgresql(url)
    told: dict[str, str] = {}

    def connect(address: str, **_: object) -> Inner:
        told["url"] = address
        if inner.failures:
            raise inner.failures.pop(0)
        return inner

    server._class = SimpleNamespace(connect=connect)
    server.told = told  # type: ignore[attr-defined]
    return server


@pytest.fixture
def server(inner: Inner) -> Postgresql:
    return server_at("postgresql://me:secret@db.example:5433/queue?sslmode=require", inner)


@pytest.fixture
def connection(server: Postgresql) -> SqlConnection:
    return server.connect()


# --- the URL


def test_the_name_has_no_secrets(server: Postgresql) -> None:
    assert server.name == "postgresql://db.example:5433/queue"


def test_what_the_url_says_goes_to_the_library__with_a_bound_on_connecting(
    server: Postgresql,
) -> None:
    server.connect()
    url = urlsplit(server.told["url"])  # type: ignore[attr-defined]
    assert (url.netloc, url.path) == ("me:secret@db.example:5433", "/queue")
    assert parse_qs(url.query) == {
        "sslmode": ["require"],
        "application_name": ["dejaq"],
        "connect_timeout": ["5"],
    }


def test_the_url_has_the_last_word(inner: Inner) -> None:
    server = server_at("postgresql://h/d?connect_timeout=60&application_name=mine", inner)
    server.connect()
    query = parse_qs(urlsplit(server.told["url"]).query)  # type: ignore[attr-defined]
    assert query == {"connect_timeout": ["60"], "application_name": ["mine"]}


def test_cockroach_is_asked_in_the_same_way(inner: Inner) -> None:
    server = server_at("cockroachdb://h:26257/d", inner)
    server.connect()
    assert server.told["url"].startswith("postgresql://h:26257/d?")  # type: ignore[attr-defined]
    assert server.name == "cockroachdb://h:26257/d"


def test_a_url_that_says_nothing_is_refused() -> None:
    with pytest.raises(BadRequest, match="postgresql url"):
        Postgresql("postgresql:///d")


def test_nobody_there_leaves_open_what_happened(server: Postgresql, inner: Inner) -> None:
    inner.failures = [failure_of(None)]
    with pytest.raises(SqlFailure, match=r"postgresql://db.example:5433/queue: text") as told:
        server.connect()
    assert told.value.verdict is Verdict.UNKNOWN


# --- what an error means


@pytest.mark.parametrize(
    ("state", "verdict", "is_broken"),
    [
        ("40001", Verdict.AGAIN, False),
        ("40P01", Verdict.AGAIN, False),
        ("23505", Verdict.TAKEN, False),
        ("42P07", Verdict.TAKEN, False),
        ("53100", Verdict.FULL, False),
        ("42601", Verdict.WRONG, False),
        ("42501", Verdict.WRONG, False),
        ("57P01", Verdict.UNKNOWN, True),
        ("40003", Verdict.UNKNOWN, True),
        ("08006", Verdict.UNKNOWN, True),
        (None, Verdict.UNKNOWN, True),
    ],
)
def test_an_error_says_whether_the_statement_was_done(
    connection: SqlConnection, inner: Inner, state: str | None, verdict: Verdict, is_broken: bool
) -> None:
    inner.failures = [failure_of(state)]
    with pytest.raises(SqlFailure) as told:
        connection.change("INSERT INTO t VALUES (1)")
    assert (told.value.verdict, connection.broken) == (verdict, is_broken)


def test_a_connection_that_the_library_gave_up_is_broken__whatever_the_error(
    connection: SqlConnection, inner: Inner
) -> None:
    inner.failures, inner.broken = [failure_of("40001")], True
    with pytest.raises(SqlFailure):
        connection.rows("SELECT 1")
    assert connection.broken


def test_parameters_are_marked_as_the_library_wants_them__as_bytes_are(
    connection: SqlConnection, inner: Inner
) -> None:
    connection.change("INSERT INTO t VALUES (?, ?)", (1, b"x"))
    assert inner.statements[-1] == "INSERT INTO t VALUES (%b, %b)"


def test_a_statement_without_rows_has_none(connection: SqlConnection) -> None:
    assert connection.rows("DELETE FROM t") == []
    assert connection.change("DELETE FROM t") == 2


def test_only_an_open_transaction_is_rolled_back__and_a_failure_breaks_the_connection(
    connection: SqlConnection, inner: Inner
) -> None:
    connection.roll_back()
    assert inner.statements == []
    inner.info.transaction_status = 2
    connection.roll_back()
    assert inner.statements == ["ROLLBACK"]
    assert not connection.broken
    inner.failures = [failure_of("08006")]
    connection.roll_back()
    assert connection.broken


# --- the server's settings


def checked(url: str, inner: Inner, changed: dict[str, str]) -> str:
    inner.answers = DURABLE | changed
    server = server_at(url, inner)
    return server.check(server.connect())


def test_a_durable_server_is_told_by_name(inner: Inner) -> None:
    assert checked("postgresql://h/d", inner, {}) == "PostgreSQL 17.2"


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_server_that_loses_what_it_acknowledged_is_refused_by_the_name_of_its_setting(
    inner: Inner, name: str
) -> None:
    with pytest.raises(Refused, match=rf"postgresql://h/d: the server's setting {name} is off"):
        checked("postgresql://h/d", inner, {f"current_setting('{name}')": "off"})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("synchronous_commit", "local", "a standby may lack what was acknowledged"),
        ("data_sync_retry", "on", "a failed write to its disk may go unnoticed"),
    ],
)
def test_what_may_lose_a_little_is_said_loudly(
    inner: Inner, caplog: pytest.LogCaptureFixture, name: str, value: str, text: str
) -> None:
    checked("postgresql://h/d", inner, {f"current_setting('{name}')": value})
    assert text in caplog.text


COCKROACH = {"version()": "CockroachDB CCL v24.3.1 (x86_64-linux, built today)"}
UNSAFE = "CLUSTER SETTING kv.raft_log.disable_synchronization_unsafe"


def test_cockroach_is_known_by_what_it_says__not_by_the_url(inner: Inner) -> None:
    """Its words for texts and storage are its own."""
    server = server_at("postgresql://h/d", inner)
    inner.answers = COCKROACH | {UNSAFE: "false"}
    assert 'COLLATE "C"' in server.text_type
    assert server.tuning("t", "content") != []
    assert server.check(server.connect()) == "CockroachDB CCL v24.3.1"
    assert (server.text_type, server.tuning("t", "content")) == ("TEXT", [])


@pytest.mark.parametrize("value", ["true", "on", "True"])
def test_a_cockroach_that_does_not_sync_is_refused(inner: Inner, value: str) -> None:
    with pytest.raises(Refused, match="disable_synchronization_unsafe is on; it must be off"):
        checked("cockroachdb://h/d", inner, COCKROACH | {UNSAFE: value})


def test_a_setting_that_the_user_may_not_see_is_warned_of(
    inner: Inner, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_at("cockroachdb://h/d", inner)
    inner.answers = COCKROACH
    connection = server.connect()
    rows = connection.rows

    def refused(statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        if statement.startswith("SHOW"):
            inner.failures = [failure_of("42501")]
        return rows(statement, parameters)

    connection.rows = refused  # type: ignore[method-assign]
    server.check(connection)
    assert "the user may not see whether" in caplog.text


# --- what is told


def test_a_listener_hears_one_word_or_none() -> None:
    words = ["one", "two"]

    class Told:
        def notifies(self, *, timeout: float, stop_after: int) -> Any:
            assert stop_after == 1
            return iter([SimpleNamespace(payload=words.pop(0))] if words else [])

    listener = Listener(Told(), psycopg.Error)  # type: ignore[arg-type]
    assert [listener.hear(0.1) for _ in range(3)] == ["one", "two", None]


def test_a_listener_that_was_cut_off_does_not_say_that_nothing_happened() -> None:
    class Cut:
        def notifies(self, **_: object) -> Any:
            raise failure_of(None)

    with pytest.raises(SqlFailure) as told:
        Listener(Cut(), psycopg.Error).hear(0.1)  # type: ignore[arg-type]
    assert told.value.verdict is Verdict.UNKNOWN
