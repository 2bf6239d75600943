"""Covers: a server whose settings lose what it acknowledged is refused, by the setting's name."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from dejaqueue.connections.postgresql import Postgresql
from dejaqueue.connections.sql import SqlConnection, SqlFailure, Verdict
from dejaqueue.connections.sql_urls import server_of
from dejaqueue.errors import Fenced, Refused
from dejaqueue.journal.records.sql import SqlRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.shared_journal_conformance import marked, marks
from dev.services import Service
from tests.patience import PATIENCE_SECONDS


@contextmanager
def changed(service: Service, statements: list[str], undo: list[str]) -> Iterator[None]:
    connection = server_of(service.url).connect()
    try:
        for statement in statements:
            connection.change(statement)
        yield
    finally:
        for statement in undo:
            connection.change(statement)
        connection.close()


def wait_for(service: Service, name: str, value: str) -> None:
    """A reload reaches new connections a moment later."""
    for _ in range(1_000):
        connection = server_of(service.url).connect()
        found = connection.rows(f"SELECT current_setting('{name}')")
        connection.close()
        if found == [(value,)]:
            return
    raise AssertionError(f"{name} did not become {value}")


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_postgresql_that_does_not_sync_is_refused(postgresql: Service, name: str) -> None:
    reload = "SELECT pg_reload_conf()"
    off = [f"ALTER SYSTEM SET {name} = off", reload]
    try:
        with changed(postgresql, off, [f"ALTER SYSTEM RESET {name}", reload]):
            wait_for(postgresql, name, "off")
            with pytest.raises(Refused, match=rf"setting {name} is off.*must be on"):
                SqlRecordStore(server_of(postgresql.url))
    finally:
        wait_for(postgresql, name, "on")
    SqlRecordStore(server_of(postgresql.url)).close()


@pytest.mark.parametrize("value", [0, 2])
def test_mariadb_that_does_not_sync_is_refused(mariadb: Service, value: int) -> None:
    name = "innodb_flush_log_at_trx_commit"
    with (
        changed(mariadb, [f"SET GLOBAL {name} = {value}"], [f"SET GLOBAL {name} = 1"]),
        pytest.raises(Refused, match=rf"{name} is {value}.*must be 1"),
    ):
        SqlRecordStore(server_of(mariadb.url))
    SqlRecordStore(server_of(mariadb.url)).close()


def test_what_may_lose_a_little_is_said_loudly(
    postgresql: Service, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_of(postgresql.url + "?options=-csynchronous_commit%3Dlocal")
    with caplog.at_level(logging.WARNING):
        SqlRecordStore(server).close()
    assert "synchronous_commit is local" in caplog.text


class SerializableServer(Postgresql):
    """PostgreSQL at SERIALIZABLE, as CockroachDB is, with its dialect.

    Attributes:
        disturb: called once, in the middle of the next append's transaction.
        again: transactions that gave way.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.disturb: Callable[[], object] | None = None
        self.again = 0

    def check(self, connection: SqlConnection) -> str:
        super().check(connection)
        self.is_cockroach = True
        return "CockroachDB's dialect"

    def connect(self) -> SqlConnection:
        connection = super().connect()
        change = connection.change

        def disturbed(statement: str, parameters: Sequence[object] = ()) -> int:
            disturb, self.disturb = self.disturb, None
            try:
                if disturb is None:
                    return change(statement, parameters)
                connection.begin()
                count = change(statement, parameters)
                disturb()
                connection.commit()
                return count
            except SqlFailure as failure:
                self.again += failure.verdict is Verdict.AGAIN
                raise
            finally:
                connection.roll_back()

        connection.change = disturbed  # type: ignore[method-assign]
        return connection


@pytest.fixture
def serializable(postgresql: Service) -> str:
    """The URL of a schema of its own, where every transaction is serializable."""
    name = f"serializable_{secrets.token_hex(6)}"
    connection = server_of(postgresql.url).connect()
    connection.change(f"CREATE SCHEMA {name}")
    connection.close()
    options = f"-csearch_path={name} -cdefault_transaction_isolation=serializable"
    url = postgresql.url.replace("postgresql:", "cockroachdb:")
    return f"{url}?options={quote(options)}"


@pytest.mark.parametrize("overtaken", [True, False])
def test_an_append_that_gives_way_to_another_transaction_is_tried_again(
    serializable: str, overtaken: bool
) -> None:
    server = SerializableServer(serializable)
    store = SqlRecordStore(server)
    log = store.open("topic", 0)
    log.append(0, [[b"one"]])
    other = server_of(serializable).connect()
    log_id = other.rows("SELECT id FROM dejaq_log")[0][0]
    other.begin()
    last = other.rows("SELECT MAX(number) FROM dejaq_record WHERE log = ?", (log_id,))[0][0]
    # Each has read what the other writes: the server lets one of them go on.
    number = last + 5 if overtaken else -1
    insert = "INSERT INTO dejaq_record (log, number, content) VALUES (?, ?, ?)"

    def disturb() -> None:
        other.change(insert, (log_id, number, b"other"))
        other.commit()

    server.disturb = disturb
    if overtaken:
        with pytest.raises(Fenced):
            log.append(1, [[b"two"]])
        assert log.last() == 6
    else:
        log.append(1, [[b"two"]])
        assert list(log.read(1, 9)) == [(1, b"one"), (2, b"two")]
    assert server.again == 1
    other.close()
    store.close()


def test_of_owners_at_serializable_one_wins_each_time(serializable: str) -> None:
    stores = [
        RecordJournalStore(SqlRecordStore(SerializableServer(serializable))) for _ in range(3)
    ]
    acknowledged: list[int] = []
    failures: list[BaseException] = []
    together = threading.Barrier(len(stores))

    def own(store: RecordJournalStore, start: int) -> None:
        try:
            for number in range(start, start + 10):
                journal = store.open("topic", 0)
                together.wait(PATIENCE_SECONDS)
                try:
                    journal.append([marked(number)], journal.tail, 1)
                    acknowledged.append(number)
                except Fenced:
                    pass
                together.wait(PATIENCE_SECONDS)
                journal.close()
        except BaseException as failure:  # noqa: BLE001  shown by the test
            failures.append(failure)
            together.abort()

    threads = [
        threading.Thread(target=own, args=(store, 100 * place))
        for place, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    journal = stores[0].open("topic", 0)
    assert sorted(marks(journal)) == sorted(acknowledged)
    assert len(acknowledged) == 10, "in each turn one got the place"
    for store in stores:
        store.close()
