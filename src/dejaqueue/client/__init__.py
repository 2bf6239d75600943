"""The client library: what a user's program imports.

Room: client. Never imports broker, journal, coordinator or engine.
See: aio.py, the source; sync.py is generated from it (scripts/generate_sync_client.py).
"""

from dejaqueue.client.aio import AsyncClient
from dejaqueue.client.aio_consumer import (
    AsyncBatchConsumer,
    AsyncConsumer,
    AsyncMessage,
    AsyncMessageBatch,
)
from dejaqueue.client.aio_cron import AsyncCron
from dejaqueue.client.aio_producer import AsyncProducer
from dejaqueue.client.aio_transaction import AsyncTransaction
from dejaqueue.client.browsing import DueHistogram, Where
from dejaqueue.client.credentials import Tls
from dejaqueue.client.lateness import LatenessHistogram
from dejaqueue.client.results import SendResult, Settled
from dejaqueue.client.sending import Sent
from dejaqueue.client.sync import Client
from dejaqueue.client.sync_consumer import BatchConsumer, Consumer, Message, MessageBatch
from dejaqueue.client.sync_cron import Cron
from dejaqueue.client.sync_producer import Producer
from dejaqueue.client.sync_transaction import Transaction

__all__ = [
    "AsyncBatchConsumer",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncCron",
    "AsyncMessage",
    "AsyncMessageBatch",
    "AsyncProducer",
    "AsyncTransaction",
    "BatchConsumer",
    "Client",
    "Consumer",
    "Cron",
    "DueHistogram",
    "LatenessHistogram",
    "Message",
    "MessageBatch",
    "Producer",
    "SendResult",
    "Sent",
    "Settled",
    "Tls",
    "Transaction",
    "Where",
]
