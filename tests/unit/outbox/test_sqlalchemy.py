"""Covers: messages that count with the transaction they are written in, by SQLAlchemy."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, create_mock_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from dejaqueue.errors import BadRequest
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox


def test_a_row_that_is_rolled_back_never_was(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    outbox = SqlAlchemyOutbox(engine)
    outbox.create()
    outbox.create()
    with Session(engine) as session:
        outbox.send(session, "mails", json={"order": 1})
        session.rollback()
        outbox.send(session, "mails", json={"order": 2})
        session.commit()
    with outbox.transaction() as execute:
        assert execute("SELECT topic, payload FROM dejaq_outbox", ()) == [("mails", b'{"order":2}')]


def test_a_field_that_is_wrong_is_refused_where_it_is_written(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    outbox = SqlAlchemyOutbox(engine)
    outbox.create()
    with engine.begin() as connection, pytest.raises(BadRequest, match="priority"):
        outbox.send(connection, "mails", payload="x", priority=-1)


def test_another_database_is_refused() -> None:
    engine = create_mock_engine("mssql://", lambda *_: None)
    with pytest.raises(BadRequest, match="postgresql or sqlite"):
        SqlAlchemyOutbox(engine)  # type: ignore[arg-type]
