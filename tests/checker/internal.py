"""Every InternalError that is made: none may come of what is outside (rule 15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dejaqueue.errors import InternalError


@contextmanager
def internal_errors() -> Iterator[list[str]]:
    """The texts of all that are made meanwhile, in this process, on any thread."""
    made: list[str] = []
    inner = InternalError.__init__

    def init(self: InternalError, text: str, story: list[str] | None = None) -> None:
        made.append(text)
        inner(self, text, story)

    InternalError.__init__ = init  # type: ignore[method-assign]
    try:
        yield made
    finally:
        InternalError.__init__ = inner  # type: ignore[method-assign]
