"""DejaQ's light client: a queue that delivers at a time, over HTTP, with httpx alone.

    import dejaqueue_client

    with dejaqueue_client.Client("http://localhost:7465") as client:
        client.create_topic("reminders")
        client.send("reminders", b"stand up", delay=60)

Room: the front door. Public names only, those of `dejaqueue`: a program that changes from one to
the other changes its import and its address.
See: docs/guides/light-client.md, also for what differs; docs/adr/0072.
"""

from dejaqueue_client._aio.client import AsyncClient
from dejaqueue_client._aio.consumer import (
    AsyncBatchConsumer,
    AsyncConsumer,
    AsyncMessage,
    AsyncMessageBatch,
)
from dejaqueue_client._aio.cron import AsyncCron
from dejaqueue_client._aio.transaction import AsyncTransaction
from dejaqueue_client._sync.client import Client
from dejaqueue_client._sync.consumer import BatchConsumer, Consumer, Message, MessageBatch
from dejaqueue_client._sync.cron import Cron
from dejaqueue_client._sync.transaction import Transaction
from dejaqueue_client.cron_entry import CronEntry
from dejaqueue_client.errors import (
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
from dejaqueue_client.filters import Where
from dejaqueue_client.message_history import HistoryGap, MessageChange, MessageHistory
from dejaqueue_client.message_view import MessageView
from dejaqueue_client.model import RowStatus, Topic, TopicKind, pack_id, unpack_id
from dejaqueue_client.results import DueHistogram, Redriven, SeekResult, SendResult, Settled
from dejaqueue_client.stats import BrokerStats, ConsumerStats, PartitionStats, TopicStats
from dejaqueue_client.tls import Tls
from dejaqueue_client.topic_settings import TopicSettings
from dejaqueue_client.version import __version__
from dejaqueue_client.work import WorkOptions, story_of

__all__ = [
    "AsyncBatchConsumer",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncCron",
    "AsyncMessage",
    "AsyncMessageBatch",
    "AsyncTransaction",
    "BadRequest",
    "BatchConsumer",
    "BrokerStats",
    "Client",
    "Consumer",
    "ConsumerStats",
    "Cron",
    "CronEntry",
    "DejaQError",
    "DueHistogram",
    "DuplicateKey",
    "EncryptionKeyMissing",
    "Forbidden",
    "HistoryGap",
    "InternalError",
    "JournalDamaged",
    "Locked",
    "Message",
    "MessageBatch",
    "MessageChange",
    "MessageHistory",
    "MessageView",
    "NotActive",
    "NotAllowed",
    "PartitionStats",
    "Redriven",
    "Refused",
    "ResourceExhausted",
    "RowStatus",
    "SeekResult",
    "SendResult",
    "Settled",
    "Tls",
    "Topic",
    "TopicExists",
    "TopicKind",
    "TopicSettings",
    "TopicStats",
    "TopicUnknown",
    "Transaction",
    "TryLater",
    "Unauthenticated",
    "Unavailable",
    "Where",
    "WorkOptions",
    "__version__",
    "pack_id",
    "story_of",
    "unpack_id",
]
