"""Options of a command that belong together, as one record.

Room: cli. Knows no command.
Holds: each option of a record has the name of one of its fields.
See: send.py, which has two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """What may be said of a message beside its payload. None = not given.

    Attributes:
        delay_ms: instead of `due_ms`: from now.
        ttl_ms: instead of `expires_ms`: from when it is due.
        tags: () = none is given.
    """

    key: str | None
    due_ms: int | None
    delay_ms: int | None
    priority: int | None
    expires_ms: int | None
    ttl_ms: int | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The names of the columns of a file. None = the column of the usual name, if there is one."""

    payload_column: str | None
    due_column: str | None
    delay_column: str | None
    key_column: str | None
    group_column: str | None


def with_records(**records: type) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Have a command take records, by parameter, of options that are given to it one by one."""

    def decorate(command: Callable[..., Answer]) -> Callable[..., Answer]:
        @wraps(command)
        def call(**options: object) -> Answer:
            gathered = {
                parameter: record(
                    **{field.name: options.pop(field.name) for field in fields(record)}
                )
                for parameter, record in records.items()
            }
            return command(**gathered, **options)

        return call

    return decorate
