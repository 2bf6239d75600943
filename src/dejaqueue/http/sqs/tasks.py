"""A message move task: what it moves, how far it is.

Room: http. On the event loop.
See: moves.py, which runs them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from dejaqueue.access.senders import Requester

RUNNING, CANCELLING, CANCELLED = "RUNNING", "CANCELLING", "CANCELLED"
COMPLETED, FAILED = "COMPLETED", "FAILED"


@dataclass(slots=True, eq=False)
class Task:
    """A move.

    Attributes:
        rate: messages a second at most; 0 = as fast as it goes.
        moved, left: messages that are on their way, durably; that stay.
        until_ms: messages that came later are not moved, UTC milliseconds.
        ending: rung to have it end.
    """

    handle: str
    source: str
    destination: str
    rate: int
    until_ms: int
    to_move: int
    by: Requester
    status: str = RUNNING
    moved: int = 0
    left: int = 0
    failure: str = ""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    def shown(self) -> dict[str, Any]:
        """What is kept of it, and shown but for names in place of ARNs."""
        return {
            "TaskHandle": self.handle,
            "Status": self.status,
            "Destination": self.destination,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.failure,
            "StartedTimestamp": self.until_ms,
        }
