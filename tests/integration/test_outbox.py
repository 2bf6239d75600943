"""Covers: relays that are killed with SIGKILL again and again while rows are committed: each row
becomes a message once, from PostgreSQL and from SQLite, whether SQLAlchemy or Django wrote it and
whichever of them the relay uses.

Not covered: each step at which a relay may end (tests/unit/outbox/test_relay.py).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import transaction
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

import dejaqueue
from dejaqueue.client import Client
from dejaqueue.outbox.django import DjangoOutbox
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox
from dev.services import Service
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS, until
from tests.server_fixtures import served
from tests.unit.outbox.django.scene import SQLITE, database

SHARE = 200
RELAYS = ("sqlalchemy", "django", "django")
"""In turns, each killed but the last."""
ROWS = SHARE * len(RELAYS)

RELAY = """
import json, sys
from dejaqueue.outbox import Relay, relay

relay.HOLD_MS = 300
broker, library, url, place = sys.argv[1:]
if library == "sqlalchemy":
    from dejaqueue.client import Client
    from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox
    from sqlalchemy import create_engine

    with Client(broker) as client:
        Relay(client, SqlAlchemyOutbox(create_engine(url)), batch_rows=50).run(0.01)
else:
    import django
    from django.conf import settings
    from django.core.management import call_command

    settings.configure(
        INSTALLED_APPS=["dejaqueue.outbox.django"],
        DATABASES={"default": json.loads(place)},
        DEJAQ={"url": broker},
    )
    django.setup()
    call_command("dejaq_relay", batch_rows=50)
"""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Service]:
    yield from served("postgresql")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder / "data", folder / "log")
    process.start()
    yield process
    process.stop()


class Relays:
    """Relays as processes, one at a time."""

    def __init__(self, folder: Path, broker: str, url: str, place: dict[str, Any]) -> None:
        self._file = folder / "relay.py"
        self._file.write_text(RELAY)
        self._broker, self._url, self._place = broker, url, json.dumps(place)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, library: str) -> None:
        source = str(Path(dejaqueue.__file__).parents[1])
        command = [sys.executable, "-W", "error", str(self._file), self._broker, library]
        self._process = subprocess.Popen(
            [*command, self._url, self._place], env=os.environ | {"PYTHONPATH": source}
        )

    def end(self, number: int = signal.SIGKILL) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_relays_that_are_killed_send_each_row_once(
    kind: str, broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    place: dict[str, Any] = {"ENGINE": SQLITE, "NAME": str(tmp_path / "shop.db")}
    if kind == "postgresql":
        service: Service = request.getfixturevalue("postgresql")
        url = service.url.replace("postgresql://", "postgresql+psycopg://")
        place = place_of(service.url)
    draw, pause = random.Random(22), threading.Event()
    relays = Relays(tmp_path, broker.url, url, place)
    with (
        Client(broker.url) as client,
        database(**place) as by_django,
        an_engine(url) as engine,
    ):
        by_sqlalchemy = SqlAlchemyOutbox(engine)
        client.create_topic(kind, partitions=4)
        try:
            for number, library in enumerate(RELAYS):
                before = client.counts(kind).get("scheduled", 0)
                relays.start(library)
                for first in range(number * SHARE, (number + 1) * SHARE, 10):
                    write(by_django, by_sqlalchemy, engine, kind, first)
                until(lambda: client.counts(kind).get("scheduled", 0) > before)  # noqa: B023
                if number < len(RELAYS) - 1:
                    pause.wait(draw.uniform(0, 0.1))
                    relays.end()
                elif kind == "postgresql":
                    with engine.begin() as connection:  # of the relay: it connects again
                        connection.execute(text(OTHERS_END))
            until(lambda: left(by_sqlalchemy) == 0)
            assert relays.end(signal.SIGTERM) == 0
            found = [int(one) for one in client.peek(kind, limit=2 * ROWS)["payload"].to_pylist()]
        finally:
            relays.end()
    assert sorted(found) == list(range(ROWS))


OTHERS_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def test_on_postgresql_both_make_the_same_tables(postgresql: Service) -> None:
    url = postgresql.url.replace("postgresql://", "postgresql+psycopg://")
    columns = text(
        "SELECT table_name, column_name, data_type, is_identity, column_name = ANY ("
        "SELECT column_name FROM information_schema.key_column_usage AS k WHERE k.table_schema = "
        "c.table_schema AND k.table_name = c.table_name) FROM information_schema.columns AS c "
        "WHERE table_schema = :of AND table_name LIKE 'dejaq%' ORDER BY 1, 2"
    )
    with database(**place_of(postgresql.url)), an_engine(url) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE SCHEMA other"))
        with an_engine(f"{url}?options=-csearch_path%3Dother") as other:
            SqlAlchemyOutbox(other).create()
        with engine.begin() as connection:
            made = [connection.execute(columns, {"of": of}).all() for of in ("public", "other")]
    assert len(made[0]) == 11
    assert made[0] == made[1]


def write(
    by_django: DjangoOutbox, by_sqlalchemy: SqlAlchemyOutbox, engine: Engine, topic: str, first: int
) -> None:
    """Ten rows, half by each."""
    with transaction.atomic():
        for row in range(first, first + 5):
            by_django.send(topic, str(row))
    with engine.begin() as connection:
        for row in range(first + 5, first + 10):
            by_sqlalchemy.send(connection, topic, str(row))


@contextmanager
def an_engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url, poolclass=NullPool)
    yield engine
    engine.dispose()


def place_of(url: str) -> dict[str, Any]:
    """A database as Django names it."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


def left(outbox: SqlAlchemyOutbox) -> int:
    with outbox.transaction() as execute:
        return int(execute("SELECT count(*) FROM dejaq_outbox", ())[0][0])
