"""Covers: the journal on SQL servers, by the suites of journals and of records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dejaqueue.connections.sql import SqlFailure, Verdict
from dejaqueue.connections.sql_urls import server_of
from dejaqueue.journal.records.sql import SqlRecordStore
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.testing.record_conformance import RecordConformance
from dejaqueue.testing.shared_journal_conformance import (
    ServedJournalConformance,
    SharedJournalConformance,
)
from dev.services import Service


class TestSqlite(SharedJournalConformance):
    one_store = True

    @pytest.fixture(autouse=True)
    def _closed_at_the_end(self) -> Iterator[None]:
        self.made: list[SqlRecordStore] = []
        yield
        for store in self.made:
            store.close()

    def make_records(self, directory: Path) -> SqlRecordStore:
        self.made.append(SqlRecordStore(server_of(f"sqlite:///{directory}/records.db")))
        return self.made[-1]


def own_url(service: Service, port: int, name: str) -> str:
    """A database, or a schema, of its own, and how to get there by that port."""
    scheme, name = (
        urlsplit(service.url).scheme,
        "t" + hashlib.sha256(name.encode()).hexdigest()[:16],
    )
    connection = server_of(service.url).connect()
    try:
        if scheme == "postgresql":
            try:
                connection.change(f"CREATE SCHEMA IF NOT EXISTS {name}")
            except SqlFailure as failure:  # of two at once, PostgreSQL refuses one all the same
                if failure.verdict is not Verdict.TAKEN:
                    raise
            return f"{scheme}://dejaq@127.0.0.1:{port}/postgres?options=-csearch_path%3D{name}"
        connection.change(f"CREATE DATABASE IF NOT EXISTS {name}")
        return f"{scheme}://dejaq@127.0.0.1:{port}/{name}"
    finally:
        connection.close()


class SqlJournal(ServedJournalConformance):
    service: Service

    def use(self, service: Service) -> Iterator[None]:
        """Stores that a test leaves open are closed: a server takes only so many connections."""
        self.service = service
        self.made: list[SqlRecordStore] = []
        with CuttingProxy(("127.0.0.1", service.port)) as self.proxy:
            yield
            for store in self.made:
                store.close()

    def make_records(self, directory: Path) -> SqlRecordStore:
        port = self.proxy.address[1]
        self.made.append(SqlRecordStore(server_of(own_url(self.service, port, str(directory)))))
        return self.made[-1]

    def kill_server(self) -> None:
        self.service.kill()

    def start_server(self) -> None:
        self.service.start()


class TestPostgresqlJournal(SqlJournal):
    @pytest.fixture(autouse=True)
    def _server(self, postgresql: Service) -> Iterator[None]:
        yield from self.use(postgresql)


class TestMariadbJournal(SqlJournal):
    @pytest.fixture(autouse=True)
    def _server(self, mariadb: Service) -> Iterator[None]:
        yield from self.use(mariadb)


class SqlRecords(RecordConformance):
    service: Service

    def make_store(self, address: tuple[str, int] | None = None) -> SqlRecordStore:
        port = address[1] if address else self.service.port
        return SqlRecordStore(server_of(own_url(self.service, port, type(self).__name__)))

    def server_address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.service.port)

    def restart_server(self) -> None:
        self.service.kill()
        self.service.start()


class TestPostgresqlRecords(SqlRecords):
    @pytest.fixture(autouse=True)
    def _server(self, postgresql: Service) -> None:
        self.service = postgresql


class TestMariadbRecords(SqlRecords):
    @pytest.fixture(autouse=True)
    def _server(self, mariadb: Service) -> None:
        self.service = mariadb


@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
def test_brokers_that_start_together_make_the_tables_together(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    service: Service = request.getfixturevalue(name)
    url = own_url(service, service.port, str(tmp_path))
    with ThreadPoolExecutor(6) as threads:
        stores = list(threads.map(lambda _: SqlRecordStore(server_of(url)), range(6)))
    assert [store.object_names("") for store in stores] == [[]] * 6
    for store in stores:
        store.close()
