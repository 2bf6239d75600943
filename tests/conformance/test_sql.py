"""Covers: the journal on SQL servers, by the suite of all journals and that of servers' records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dejaqueue.connections.sql import SqlServer, server_of
from dejaqueue.journal.records.sql import SqlRecordStore
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.testing.record_conformance import RecordConformance, ServerConformance
from dev.services import Service


class TestSqlite(RecordConformance):
    one_store = True

    def make_records(self, directory: Path) -> SqlRecordStore:
        return SqlRecordStore(server_of(f"sqlite:///{directory}/records.db"))


class SqlConformance(ServerConformance):
    """A database of its own for each test, reached through a proxy."""

    service: Service
    proxy: CuttingProxy

    def server(self, directory: Path) -> SqlServer:
        name = "t" + hashlib.sha256(str(directory).encode()).hexdigest()[:16]
        self.create(name)
        parts = urlsplit(self.service.url)
        return server_of(f"{parts.scheme}://dejaq@127.0.0.1:{self.proxy.port}/{name}{self.query}")

    query = ""

    def create(self, name: str) -> None:
        raise NotImplementedError

    def make_records(self, directory: Path) -> SqlRecordStore:
        return SqlRecordStore(self.server(directory))

    def cut_next(self, *, answer: bool) -> None:
        self.proxy.cut_next(answer=answer)

    def kill_server(self) -> None:
        self.service.kill()

    def start_server(self) -> None:
        self.service.start()


class TestPostgresql(SqlConformance):
    @pytest.fixture(autouse=True)
    def _server(self, postgresql: Service) -> Iterator[None]:
        self.service = postgresql
        with CuttingProxy(postgresql.port) as self.proxy:
            yield

    def create(self, name: str) -> None:
        connection = server_of(self.service.url).connect()
        try:
            found = connection.rows("SELECT 1 FROM pg_database WHERE datname = ?", (name,))
            if not found:
                connection.change(f"CREATE DATABASE {name}")
        finally:
            connection.close()


class TestMariadb(SqlConformance):
    @pytest.fixture(autouse=True)
    def _server(self, mariadb: Service) -> Iterator[None]:
        self.service = mariadb
        with CuttingProxy(mariadb.port) as self.proxy:
            yield

    def create(self, name: str) -> None:
        connection = server_of(self.service.url).connect()
        try:
            connection.change(f"CREATE DATABASE IF NOT EXISTS {name}")
        finally:
            connection.close()
