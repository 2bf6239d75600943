"""An outbox in a database that a program reaches by SQLAlchemy.

Room: outbox. Needs `dejaqueue[sqlalchemy]`, and a driver of PostgreSQL or SQLite.
Holds: `send` writes in the caller's transaction and commits nothing.
See: tables.py; docs/guides/outbox.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from dejaqueue.errors import BadRequest
from dejaqueue.outbox.tables import SCHEMA, TYPES, Execute, write


class SqlAlchemyOutbox:
    """The outbox of a database.

    Args:
        engine: of PostgreSQL or SQLite.

    Raises:
        BadRequest: it is of another database.
    """

    def __init__(self, engine: Engine) -> None:
        if engine.dialect.name not in TYPES:
            raise BadRequest("database of an outbox", " or ".join(TYPES), engine.dialect.name)
        self._engine = engine

    def create(self) -> None:
        """Make the tables, where they are not there yet."""
        with self._engine.begin() as connection:
            for statement in SCHEMA:
                connection.exec_driver_sql(statement.format(**TYPES[self._engine.dialect.name]))

    def send(
        self,
        of: Connection | Session,
        topic: str,
        payload: bytes | str | None = None,
        **message: Any,
    ) -> None:
        """Write a message; it is sent if the transaction of this connection or session commits.

        Args:
            of: whose transaction.
            topic: where to.
            payload: what it says; or `json=`.
            message: the other arguments of `Client.send`: `due`, `key` and so on.

        Raises:
            BadRequest: one of them is wrong.
        """
        connection = of.connection() if isinstance(of, Session) else of
        said = message if payload is None else {"payload": payload, **message}
        write(_execute_of(connection), topic, said)

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """A transaction of its own."""
        with self._engine.begin() as connection:
            yield _execute_of(connection)


def _execute_of(connection: Connection) -> Execute:
    marks = connection.dialect.paramstyle in {"format", "pyformat"}

    def execute(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        text = statement if marks else statement.replace("%s", "?")
        found = connection.exec_driver_sql(text, tuple(values))
        return [tuple(row) for row in found] if found.returns_rows else []

    return execute
