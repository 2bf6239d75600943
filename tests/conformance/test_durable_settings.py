"""Covers: a server whose settings lose what it acknowledged is refused, by the setting's name."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dejaqueue.connections.postgresql import Postgresql
from dejaqueue.connections.sql import SqlConnection, SqlFailure, Verdict, server_of
from dejaqueue.errors import Fenced, Refused
from dejaqueue.journal.records.sql import SqlRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.shared_journal_conformance import marked, marks
from dev.services import Service


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


class CountedServer(Postgresql):
    """PostgreSQL at SERIALIZABLE, as CockroachDB is, with its dialect; counts what gave way."""

    again = 0

    def check(self, connection: SqlConnection) -> str:
        super().check(connection)
        self.is_cockroach = True
        return "CockroachDB's dialect"

    def connect(self) -> SqlConnection:
        connection = super().connect()
        run = connection._run  # type: ignore[attr-defined]

        def counted(statement: str, parameters: tuple[object, ...]) -> object:
            try:
                return run(statement, parameters)
            except SqlFailure as failure:
                CountedServer.again += failure.verdict is Verdict.AGAIN
                raise

        connection._run = counted  # type: ignore[attr-defined]
        return connection


def test_serializable_transactions_that_give_way_are_tried_again(
    postgresql: Service, tmp_path: Path
) -> None:
    url = postgresql.url.replace("postgresql:", "cockroachdb:")
    connection = server_of(postgresql.url).connect()
    connection.change("CREATE SCHEMA serializable")
    connection.close()
    options = "?options=-csearch_path%3Dserializable%20"
    options += "-cdefault_transaction_isolation%3Dserializable"
    stores = [RecordJournalStore(SqlRecordStore(CountedServer(url + options))) for _ in range(3)]
    acknowledged: list[int] = []
    failures: list[BaseException] = []
    together = threading.Barrier(len(stores))

    def own(store: RecordJournalStore, start: int) -> None:
        try:
            for number in range(start, start + 20):
                journal = store.open("topic", 0)
                together.wait(30)
                try:
                    journal.append([marked(number)], journal.tail, 1)
                    acknowledged.append(number)
                except Fenced:
                    pass
                together.wait(30)
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
    assert CountedServer.again > 0, "nothing ever gave way"
    journal = stores[0].open("topic", 0)
    assert sorted(marks(journal)) == sorted(acknowledged)
    assert len(acknowledged) == 20, "in each turn one got the place"
    for store in stores:
        store.close()
