"""DOQ's queues on the broker: made, counted.

Room: http. What waits for a disk or another broker: call it on a thread.
See: topics.py for what a queue is as a topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import Refused, TopicUnknown
from dejaqueue.http.service import Service
from dejaqueue.model import Topic


def create(broker: Broker, asked: Topic) -> Topic:
    """Make a queue; one of that name and type that is there is returned as it is.

    Raises:
        Refused: there is one of another type.
    """
    try:
        known = broker.topic(asked.name)
    except TopicUnknown:
        return broker.create_topic(asked)
    if known.kind is not asked.kind:
        raise Refused(f"there is a topic {asked.name} of the kind {known.kind}")
    return known


def stats_of(
    service: Service, bearer: str | None, shown: Sequence[Topic]
) -> dict[str, dict[str, Any]]:
    """The counts of these topics, by name; those that are gone meanwhile are left out.

    Args:
        bearer: the caller's API key, with which other brokers are asked; None = there is none.
    """
    if service.broker.is_shared:
        stats: dict[str, dict[str, Any]] = service.gather(bearer, service.broker.call("stats"))
        return stats["topics"]
    stats = {}
    for topic in shown:
        with suppress(TopicUnknown):
            stats[topic.name] = service.broker.call("stats", {"topic": topic.name})
    return stats
