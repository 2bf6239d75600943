"""DejaQ: a message queue that delivers at a time, to the millisecond, in columns.

    import dejaqueue

    with dejaqueue.open("./queue") as queue:             # a broker in this process
        queue.create_topic("reminders")
        queue.send("reminders", b"stand up", delay=60)

    client = dejaqueue.Client("dejaq://localhost:7464")  # or one on a server

Room: the front door. Public names only; a name that needs Arrow or the broker loads it when it is
first used, so that `dejaq --help` loads neither, and a program that talks to a server no broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    DuplicateKey,
    EncryptionKeyMissing,
    Forbidden,
    InternalError,
    JournalDamaged,
    Locked,
    NotActive,
    NotAllowed,
    Refused,
    ResourceExhausted,
    TopicExists,
    TopicUnknown,
    TryLater,
    Unauthenticated,
    Unavailable,
)
from dejaqueue.model import RowStatus, Topic, TopicKind, pack_id, unpack_id
from dejaqueue.operating_system import refuse_broker, runs_brokers
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue.client import (
        AsyncClient,
        Client,
        Message,
        MessageBatch,
        MessageView,
        Tls,
        TopicSettings,
    )
    from dejaqueue.local import open, open_async  # noqa: A004 - as the module is used: dejaqueue.open
    from dejaqueue.schema.cron import CronEntry

__all__ = [
    "AsyncClient",
    "BadRequest",
    "Client",
    "CronEntry",
    "DejaQError",
    "DuplicateKey",
    "EncryptionKeyMissing",
    "Forbidden",
    "InternalError",
    "JournalDamaged",
    "Locked",
    "Message",
    "MessageBatch",
    "MessageView",
    "NotActive",
    "NotAllowed",
    "Refused",
    "ResourceExhausted",
    "RowStatus",
    "Tls",
    "Topic",
    "TopicExists",
    "TopicKind",
    "TopicSettings",
    "TopicUnknown",
    "TryLater",
    "Unauthenticated",
    "Unavailable",
    "__version__",
    "open",
    "open_async",
    "pack_id",
    "unpack_id",
]


_PLACES = {
    "AsyncClient": "dejaqueue.client",
    "Client": "dejaqueue.client",
    "CronEntry": "dejaqueue.schema.cron",
    "Message": "dejaqueue.client",
    "MessageBatch": "dejaqueue.client",
    "MessageView": "dejaqueue.client",
    "Tls": "dejaqueue.client",
    "TopicSettings": "dejaqueue.client",
    "open": "dejaqueue.local",
    "open_async": "dejaqueue.local",
}
"""Names that are imported when they are first used: the client loads Arrow, `open` the broker."""
_OF_A_BROKER = ("open", "open_async")


def __getattr__(name: str) -> Any:
    """What `_PLACES` names."""
    if name in _OF_A_BROKER and not runs_brokers():
        return refuse_broker
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'dejaqueue' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion offers: the public names, also those that are not loaded yet."""
    return sorted(__all__)
