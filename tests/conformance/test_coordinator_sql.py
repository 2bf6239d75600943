"""Facts in real SQL databases keep the contract of a coordinator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.testing.coordinator_conformance import (
    CoordinatorConformance,
    ServedCoordinatorConformance,
)
from dev.services import Service, missing, start


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Service]:
    if lacking := missing("postgresql"):
        pytest.skip(lacking)
    with start("postgresql") as service:
        yield service


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Service]:
    if lacking := missing("mariadb"):
        pytest.skip(lacking)
    with start("mariadb") as service:
        yield service


class _Served(ServedCoordinatorConformance):
    ttl_late_ms = 600
    service: Service

    def port(self) -> int:
        return self.service.port

    def stop(self) -> None:
        self.service.kill()

    def start(self) -> None:
        self.service.start()


class TestPostgresql(_Served):
    @pytest.fixture(autouse=True)
    def _use(self, postgresql: Service) -> None:
        import psycopg

        self.service = postgresql
        self.schema = f"facts_{uuid.uuid4().hex}"
        with psycopg.connect(postgresql.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}")

    def url(self, port: int | None = None) -> str:
        place = f"dejaq@127.0.0.1:{port or self.service.port}/postgres"
        return f"postgresql://{place}?options=-csearch_path%3D{self.schema}"


class TestMariadb(_Served):
    @pytest.fixture(autouse=True)
    def _use(self, mariadb: Service) -> None:
        import pymysql

        self.service = mariadb
        self.database = f"facts_{uuid.uuid4().hex}"
        with pymysql.connect(host="127.0.0.1", port=mariadb.port, user="dejaq") as connection:
            connection.cursor().execute(f"CREATE DATABASE {self.database}")

    def url(self, port: int | None = None) -> str:
        return f"mysql://dejaq@127.0.0.1:{port or self.service.port}/{self.database}"


class TestSqlite(CoordinatorConformance):
    ttl_late_ms = 600
    race_times = 10

    @pytest.fixture(autouse=True)
    def _use(self, tmp_path: Path) -> None:
        self.path = tmp_path / "facts.sqlite"

    def url(self, port: int | None = None) -> str:
        return f"sqlite:///{self.path}"
