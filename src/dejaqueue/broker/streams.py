"""The part of the broker's door that servers need for streams: writers, sessions, deliveries.

Room: broker. Names only; each is said in its own module. Servers import them from here, so that
what is behind the door can move.
"""

from __future__ import annotations

from dejaqueue.broker.dispatch import Push, Sink
from dejaqueue.broker.reading import delivery_batches
from dejaqueue.broker.requests import ReplyTo, no_reply
from dejaqueue.broker.runtime import TopicRuntime
from dejaqueue.broker.session import ConsumerSession
from dejaqueue.broker.writer import Writer

__all__ = [
    "ConsumerSession",
    "Push",
    "ReplyTo",
    "Sink",
    "TopicRuntime",
    "Writer",
    "delivery_batches",
    "no_reply",
]
