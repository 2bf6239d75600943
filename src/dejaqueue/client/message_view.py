"""One message as it is now, told without leasing it.

Room: client. Values only.
See: _aio/browse.py, whose `get` answers with it; schema.messages.PEEK.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dejaqueue.client.sending.content import json_in
from dejaqueue.errors import BadRequest
from dejaqueue.schema.messages import DEFAULT_PRIORITY

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message as it was when the broker was asked; it may have changed since.

    Attributes:
        id: its id.
        state: `scheduled`, `ready` (its time has come), `leased`, `dead` (on its way to the
            dead-letter topic), `staged` or `staged_ack` (in an undecided transaction).
        due_ms: when it is due, UTC milliseconds; of a leased one when its lease ends.
        attempts: deliveries so far.
        payload: None = the caller may see messages, and not what they carry; or it cannot be read.
        unread: why its payload cannot be read now; "" = nothing is wrong with it.
        consumer: of a leased one: the name of the consumer that has it; None if it is not known.
    """

    id: int
    state: str
    due_ms: int
    attempts: int = 0
    key: str | None = None
    group: str = ""
    priority: int = DEFAULT_PRIORITY
    tags: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    payload: bytes | None = None
    consumer: str | None = None
    unread: str = ""

    @property
    def due(self) -> datetime:
        """When it is due, in UTC; of a leased one when its lease ends."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    def json(self) -> Any:
        """The value that its payload says as JSON. Raises BadRequest, which names its id."""
        if self.payload is None:
            limit = self.unread or "one that the caller may read"
            raise BadRequest(f"payload of message {self.id}", limit, None)
        return json_in(self.payload, self.id)


def view_of(row: dict[str, Any]) -> MessageView:
    """The message of a row of schema PEEK, in which the payload may be missing."""
    return MessageView(
        id=row["id"],
        state=row["state"],
        due_ms=row["due"],
        attempts=row["attempts"],
        key=row["key"],
        group=row["group"] or "",
        priority=row["priority"],
        tags=tuple(row["tags"] or ()),
        headers=tuple(row["headers"] or ()),
        payload=row.get("payload"),
        consumer=row.get("consumer"),
        unread=row.get("unread") or "",
    )
