"""The client library: what a user's program imports.

Room: client. Never imports broker, journal, coordinator or engine.
See: _aio, the source, and _sync, which is generated from it (scripts/generate_sync_client.py).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dejaqueue.client._aio.client import AsyncClient
    from dejaqueue.client._aio.consumer import (
        AsyncBatchConsumer,
        AsyncConsumer,
        AsyncMessage,
        AsyncMessageBatch,
    )
    from dejaqueue.client._aio.cron import AsyncCron
    from dejaqueue.client._aio.payload import AsyncPayload
    from dejaqueue.client._aio.producer import AsyncProducer
    from dejaqueue.client._aio.transaction import AsyncTransaction
    from dejaqueue.client._sync.client import Client
    from dejaqueue.client._sync.consumer import BatchConsumer, Consumer, Message, MessageBatch
    from dejaqueue.client._sync.cron import Cron
    from dejaqueue.client._sync.payload import Payload
    from dejaqueue.client._sync.producer import Producer
    from dejaqueue.client._sync.transaction import Transaction
    from dejaqueue.client.browsing import DueHistogram, Where
    from dejaqueue.client.connection_watch import ConnectionChange
    from dejaqueue.client.consuming.lateness import LatenessHistogram
    from dejaqueue.client.consuming.work import WorkOptions, story_of
    from dejaqueue.client.credentials import Tls
    from dejaqueue.client.message_history import HistoryGap, MessageChange, MessageHistory
    from dejaqueue.client.message_view import MessageView
    from dejaqueue.client.results import SendResult, Settled
    from dejaqueue.client.sending.sent import Sent
    from dejaqueue.client.stats import BrokerStats, ConsumerStats, PartitionStats, TopicStats
    from dejaqueue.client.topic_settings import TopicSettings

__all__ = [
    "AsyncBatchConsumer",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncCron",
    "AsyncMessage",
    "AsyncMessageBatch",
    "AsyncPayload",
    "AsyncProducer",
    "AsyncTransaction",
    "BatchConsumer",
    "BrokerStats",
    "Client",
    "ConnectionChange",
    "Consumer",
    "ConsumerStats",
    "Cron",
    "DueHistogram",
    "HistoryGap",
    "LatenessHistogram",
    "Message",
    "MessageBatch",
    "MessageChange",
    "MessageHistory",
    "MessageView",
    "PartitionStats",
    "Payload",
    "Producer",
    "SendResult",
    "Sent",
    "Settled",
    "Tls",
    "TopicSettings",
    "TopicStats",
    "Transaction",
    "Where",
    "WorkOptions",
    "story_of",
]

_PLACES = {
    "AsyncBatchConsumer": "_aio.consumer",
    "AsyncClient": "_aio.client",
    "AsyncConsumer": "_aio.consumer",
    "AsyncCron": "_aio.cron",
    "AsyncMessage": "_aio.consumer",
    "AsyncMessageBatch": "_aio.consumer",
    "AsyncPayload": "_aio.payload",
    "AsyncProducer": "_aio.producer",
    "AsyncTransaction": "_aio.transaction",
    "BatchConsumer": "_sync.consumer",
    "BrokerStats": "stats",
    "Client": "_sync.client",
    "ConnectionChange": "connection_watch",
    "Consumer": "_sync.consumer",
    "ConsumerStats": "stats",
    "Cron": "_sync.cron",
    "DueHistogram": "browsing",
    "HistoryGap": "message_history",
    "LatenessHistogram": "consuming.lateness",
    "Message": "_sync.consumer",
    "MessageBatch": "_sync.consumer",
    "MessageChange": "message_history",
    "MessageHistory": "message_history",
    "MessageView": "message_view",
    "PartitionStats": "stats",
    "Payload": "_sync.payload",
    "Producer": "_sync.producer",
    "SendResult": "results",
    "Sent": "sending.sent",
    "Settled": "results",
    "Tls": "credentials",
    "TopicSettings": "topic_settings",
    "TopicStats": "stats",
    "Transaction": "_sync.transaction",
    "Where": "browsing",
    "WorkOptions": "consuming.work",
    "story_of": "consuming.work",
}
"""Each name is imported when it is first used: most programs have no event loop, and a broker that
uses a part of the client loads that alone."""


def __getattr__(name: str) -> Any:
    """What `_PLACES` names."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"dejaqueue.client.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
