"""Covers: models, migrations and the tables that relays know are the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from django.apps import apps
from django.core.management import call_command
from django.db import transaction
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import dejaqueue
from dejaqueue.outbox import Relay
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox
from dejaqueue.outbox.tables import SCHEMA, TYPES
from tests.unit.outbox.django.scene import SQLITE, database

TABLES = ("dejaq_outbox", "dejaq_outbox_relay")


def test_migrations_make_the_tables_that_relays_know(tmp_path: Path) -> None:
    with database(ENGINE=SQLITE, NAME=tmp_path / "shop.db"):
        call_command("makemigrations", check=True, verbosity=0)  # fails where one is missing
    with closing(sqlite3.connect(":memory:")) as plain:
        for statement in SCHEMA:
            plain.execute(statement.format(**TYPES["sqlite"]))
        with closing(sqlite3.connect(tmp_path / "shop.db")) as migrated:
            for table in TABLES:
                assert columns(migrated, table) == columns(plain, table)


def columns(connection: sqlite3.Connection, table: str) -> dict[str, tuple[str, bool]]:
    """Of a table: the types of its columns, and whether each is a part of its key."""
    rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
    assert rows
    return {name: (kind.lower(), bool(key)) for _, name, kind, _, _, key in rows}


def test_rows_of_django_are_seen__and_sent_by_any_relay(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    with database(ENGINE=SQLITE, NAME=tmp_path / "shop.db") as outbox:
        model = apps.get_app_config("dejaq_outbox").get_model  # Django has to be set up before
        with transaction.atomic():
            outbox.send("mails", b"tea")
        (row,) = model("OutboxRow").objects.all()
        assert (str(row), row.payload) == ("message 1 for mails", b"tea")
        with dejaqueue.open("memory:") as client:
            client.create_topic("mails")
            assert Relay(client, SqlAlchemyOutbox(engine)).send() == 1
        assert not model("OutboxRow").objects.exists()
        assert str(model("RelayRow").objects.get()).endswith("batch 1")
