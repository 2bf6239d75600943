"""The part of the broker's door that servers need for streams: writers, sessions, deliveries.

Room: broker. Names only; each is said in its own module. Servers import them from here, so that
what is behind the door can move.
"""

from __future__ import annotations

from dejaqueue.broker.consumers.dispatch import Push, Sink
from dejaqueue.broker.consumers.gathering import (
    is_at_hand,
    readable_batches,
    salvaged,
    stored_batches,
    waits_for_store,
    whole_batch,
)
from dejaqueue.broker.replies import ReplyTo, no_reply
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.broker.topic.session import ConsumerSession
from dejaqueue.broker.topic.writer import Writer

__all__ = [
    "ConsumerSession",
    "Push",
    "ReplyTo",
    "ServedTopic",
    "ServedView",
    "Sink",
    "Writer",
    "is_at_hand",
    "no_reply",
    "readable_batches",
    "salvaged",
    "stored_batches",
    "waits_for_store",
    "whole_batch",
]
