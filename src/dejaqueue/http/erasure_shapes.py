"""Bodies of an erasure, as the API's description shows them.

Room: http.
See: routes/topics.py; broker/calls/erasure.py.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dejaqueue import limits
from dejaqueue.http.shapes import SeekFilter, Shape


class EraseRequest(Shape):
    """Which messages to erase: by `keys`, `ids`, or `where`."""

    keys: list[str] | None = Field(None, max_length=limits.PEEK_ROWS_MAX)
    ids: list[str] | None = Field(
        None, max_length=limits.PEEK_ROWS_MAX, description="Instead of keys."
    )
    where: SeekFilter | None = Field(None, description="Instead of keys: all that fit.")
    origin: str | None = Field(None, description="Dead letters of messages of this topic alone.")
    after: str | None = Field(None, description="The `next` of the answer before.")


class ErasureReport(Shape):
    """What an erasure did so far."""

    found: int = Field(description="Rows that were stored, copies counted.")
    ended: int = Field(description="Messages that lived until then.")
    held: int = Field(description="Messages that are left: in a transaction, or dying.")
    segments: int = Field(description="Of the journal, that are deleted.")
    bytes: int = Field(description="Of these, and of files of history.")
    payloads: int = Field(description="Deleted from the payload store.")
    changes: int = Field(description="Rows of history that are gone.")
    next: str | None = Field(description="Give it as `after` to go on; null = all is gone.")
    took_ms: int | None = None
    letters: list[str] | None = Field(None, description="Where its dead letters are.")
    backups: list[dict[str, Any]] | None = Field(None, description="Which have it still.")
    unread: list[str] | None = Field(None, description="Why backups could not be listed.")
    silent: list[str] | None = Field(None, description="Brokers that did not answer: ask again.")
    left: list[str] | None = Field(None, description="What may be there yet, in words.")
