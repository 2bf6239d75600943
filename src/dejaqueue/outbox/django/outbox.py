"""The outbox of one of Django's databases.

Room: outbox.django.
Holds: `send` writes in the transaction that the program has open and commits nothing; without one
it refuses, as the message would count whatever becomes of the rows beside it.
See: ../tables.py; docs/guides/outbox.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from dejaqueue.errors import BadRequest
from dejaqueue.outbox.tables import TYPES, Execute, write


class DjangoOutbox:
    """The outbox of a database.

    Args:
        using: which of `DATABASES`, of PostgreSQL or SQLite.
    """

    def __init__(self, using: str = DEFAULT_DB_ALIAS) -> None:
        self._using = using

    def send(self, topic: str, payload: bytes | str | None = None, **message: Any) -> None:
        """Write a message; it is sent if the transaction that is open commits.

        Args:
            topic: where to.
            payload: what it says; or `json=`.
            message: the other arguments of `Client.send`: `due`, `key` and so on.

        Raises:
            BadRequest: one of them is wrong, or no transaction is open.
        """
        self._check_database()
        if not connections[self._using].in_atomic_block:
            raise BadRequest("transaction of an outbox", "a block of transaction.atomic()", None)
        said = message if payload is None else {"payload": payload, **message}
        write(self._execute, topic, said)

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """A transaction of its own."""
        self._check_database()
        with transaction.atomic(using=self._using, durable=True):
            yield self._execute

    def _check_database(self) -> None:
        vendor = connections[self._using].vendor
        if vendor not in TYPES:
            raise BadRequest("database of an outbox", " or ".join(TYPES), vendor)

    def _execute(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with connections[self._using].cursor() as cursor:
            cursor.execute(statement, tuple(values))
            return list(cursor.fetchall()) if cursor.description else []
