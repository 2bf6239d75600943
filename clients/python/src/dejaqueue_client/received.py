"""Received messages as a user sees them: the parts that wait for nothing.

Room: client. _aio/consumer.py and _sync/consumer.py add ack, nack and extend.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from dejaqueue_client.content import json_in
from dejaqueue_client.held import Leased

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class MessageFields:
    """One received message.

    Attributes:
        lateness_us: from its due time until it was leased, and since it came until it was handed
            over, microseconds. The way from the broker is not in it.
        is_settled: it was acked or nacked here, or given to a transaction.
    """

    __slots__ = ("__weakref__", "_core", "_keeper", "_leased", "is_settled", "lateness_us")

    def __init__(self, core: Any, keeper: object, leased: Leased, now_s: float) -> None:
        self._core = core
        self._keeper = keeper  # a message keeps its consumer, or its lease would end with it
        self._leased = leased
        self.is_settled = False
        self.lateness_us = leased.late_us + round((now_s - leased.taken_s) * 1_000_000)

    @property
    def id(self) -> int:
        """Its id."""
        return self._leased.id

    @property
    def due_ms(self) -> int:
        """When it was due, UTC milliseconds."""
        return int(self._leased.values["due"])

    @property
    def due(self) -> datetime:
        """When it was due, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    @property
    def attempt(self) -> int:
        """Which delivery of it this is, from 1."""
        return self._leased.attempt

    @property
    def payload(self) -> bytes:
        """Its payload."""
        return self._leased.payload

    def json(self) -> Any:
        """The value that its payload says as JSON.

        Raises:
            BadRequest: the payload is no JSON in UTF-8; the text names the message's id.
        """
        return json_in(self.payload, self.id)

    @property
    def key(self) -> str | None:
        """The producer's own id of it."""
        key: str | None = self._leased.values.get("key")
        return key

    @property
    def group(self) -> str:
        """Its group; "" = none."""
        return str(self._leased.values.get("group", ""))

    @property
    def priority(self) -> int:
        """Its priority; 0 is most urgent."""
        return int(self._leased.values["priority"])

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        return tuple(self._leased.values.get("tags", ()))

    @property
    def headers(self) -> dict[str, str]:
        """Its headers."""
        return dict(self._leased.values.get("headers", {}))

    def __repr__(self) -> str:
        key = "" if self.key is None else f"key={self.key!r} "
        settled = ", settled" if self.is_settled else ""
        return (
            f"<{type(self).__name__} id={self.id} due={self.due.isoformat()} "
            f"attempt={self.attempt} {key}payload={len(self.payload)} B{settled}>"
        )

    def origin(self) -> tuple[Any, list[Leased]]:
        """What holds the message, and the message, for settling it."""
        self.is_settled = True
        return self._core, [self._leased]


class BatchFields:
    """Received messages that are settled together.

    Attributes:
        ids: of each.
        dues_ms: when each was due, UTC milliseconds.
        attempts: which delivery of it this is.
        payloads: of each.
        is_settled: they were acked or nacked here, or given to a transaction.
    """

    def __init__(self, core: Any, keeper: object, rows: list[Leased], now_s: float) -> None:
        self._core = core
        self._keeper = keeper
        self._rows = rows
        self._now_s = now_s
        self.is_settled = False
        self.ids = [one.id for one in rows]
        self.dues_ms = [int(one.values["due"]) for one in rows]
        self.attempts = [one.attempt for one in rows]
        self.payloads = [one.payload for one in rows]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        ids = f", ids {self.ids[0]} to {self.ids[-1]}" if self.ids else ""
        settled = ", settled" if self.is_settled else ""
        return f"<{type(self).__name__} of {len(self)} messages{ids}{settled}>"

    def origin(self) -> tuple[Any, list[Leased]]:
        """What holds the messages, and the messages, for settling them."""
        self.is_settled = True
        return self._core, self._rows
