"""How a request is answered: a function that takes the reply, called exactly once.

Room: broker. Types only, so that whoever answers need not know what was asked.
Holds: an answer never blocks: it runs on a worker, or on the thread that appends.
See: requests.py, whose records carry one; joined_reply.py, which makes one answer of several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dejaqueue.wire.frames import Reply

ReplyTo: TypeAlias = Callable[[Reply], None]


def no_reply(_reply: Reply) -> None:
    """For requests that nobody waits for."""
