"""DejaQ: a message queue that delivers at a time, to the millisecond, in columns.

    import dejaqueue

    with dejaqueue.open("./queue") as queue:             # a broker in this process
        queue.create_topic("reminders")
        queue.send("reminders", b"stand up", delay=60)

    client = dejaqueue.Client("dejaq://localhost:7464")  # or one on a server

Room: the front door. Public names only; the broker is loaded when `open` is first used, so that a
program that only talks to a server does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dejaqueue.client import (
    AsyncClient,
    Client,
    Message,
    MessageBatch,
)
from dejaqueue.errors import DejaQError
from dejaqueue.model import RowStatus, Topic, TopicKind, pack_id, unpack_id
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue.local import open, open_async  # noqa: A004 - as the module is used: dejaqueue.open

__all__ = [
    "AsyncClient",
    "Client",
    "DejaQError",
    "Message",
    "MessageBatch",
    "RowStatus",
    "Topic",
    "TopicKind",
    "__version__",
    "open",
    "open_async",
    "pack_id",
    "unpack_id",
]


def __getattr__(name: str) -> Any:
    """`open` and `open_async`, which load the broker."""
    if name in ("open", "open_async"):
        from dejaqueue import local

        return getattr(local, name)
    raise AttributeError(f"module 'dejaqueue' has no attribute {name!r}")
