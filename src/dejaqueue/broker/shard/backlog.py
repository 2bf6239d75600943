"""Backlog: how much is live, and how much of it a topic may hold.

Room: broker. Pure; workers note it after each step, and check it before they let more in.
Holds: a refusal names limit and value, says when to come back, and changes nothing (rule 14).
See: allotment.py, which asks; docs/guides/backpressure.md; model.Topic for the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic
from dejaqueue.topic_names import subscription_name

RETRY_MS = 1_000
"""When to come back: consumers may have made room by then, and a thousand producers that ask once
a second cost nothing."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is live.

    Attributes:
        count: messages.
        byte_count: bytes of their payloads.
    """

    count: int = 0
    byte_count: int = 0

    def __add__(self, other: Backlog) -> Backlog:
        return Backlog(self.count + other.count, self.byte_count + other.byte_count)

    def __sub__(self, other: Backlog) -> Backlog:
        return Backlog(self.count - other.count, self.byte_count - other.byte_count)


def notes_sizes(topic: Topic) -> bool:
    """True if the engine is to know the size of each payload."""
    return bool(topic.max_backlog_bytes or topic.retention_bytes)


def check_backlog(
    topic: Topic,
    live: Backlog,
    rows: int,
    byte_count: int,
    holder: Callable[[], str] = lambda: "",
) -> None:
    """Raise ResourceExhausted if so much more does not fit into the topic.

    Args:
        live: of all partitions.
        rows, byte_count: messages that want in, and bytes of their payloads.
        holder: tells which subscription has most, "" = the unnamed one.
    """
    if topic.max_backlog_count and live.count + rows > topic.max_backlog_count:
        raise ResourceExhausted(
            f"topic {topic.name}: max_backlog_count is {topic.max_backlog_count}, "
            f"{live.count} messages are live{_within(topic, holder())}; "
            f"retry when some are done",
            RETRY_MS,
        )
    if topic.max_backlog_bytes and live.byte_count + byte_count > topic.max_backlog_bytes:
        raise ResourceExhausted(
            f"topic {topic.name}: max_backlog_bytes is {topic.max_backlog_bytes}, "
            f"{live.byte_count} bytes are live{_within(topic, holder())} and {byte_count} want in; "
            f"retry when some are done",
            RETRY_MS,
        )


def _within(topic: Topic, holder: str) -> str:
    return f" in {subscription_name(topic.name, holder)}" if holder else ""
