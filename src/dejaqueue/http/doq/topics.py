"""DOQ's queues are topics: a delayed queue is a timeline, a fair queue a fair topic.

Room: http. Pure: settings to settings.
Holds: what a queue is can be read from its topic alone, so that it survives whatever that survives.

    type        kind                    strategy     weights: none = ROUND_ROBIN, some = WEIGHTED
    ack_timeout lease_ms                max_unacked  group_in_flight_max
"""

from __future__ import annotations

from typing import Any

from dejaqueue.errors import BadRequest, Refused
from dejaqueue.http.doq.shapes import DEFAULT_GROUP, DoqSettings
from dejaqueue.model import GroupOrder, OnDuplicate, Topic, TopicKind

ACK_TIMEOUT_SECONDS = 1_800
"""DOQ's own default, half an hour."""
ROUND_ROBIN, WEIGHTED = "ROUND_ROBIN", "WEIGHTED"
KINDS = {"delayed": TopicKind.TIMELINE, "fair": TopicKind.FAIR}
TYPES = {kind: name for name, kind in KINDS.items()}
EQUAL_WEIGHTS = {DEFAULT_GROUP: 1}
"""Says WEIGHTED while nobody has given weights: 1 is what every group has."""


def strategy_of(settings: DoqSettings) -> str:
    """The strategy that is asked for. Raises BadRequest."""
    strategy = settings.strategy.upper() or ROUND_ROBIN
    if strategy not in (ROUND_ROBIN, WEIGHTED):
        raise BadRequest("settings.strategy", f"{ROUND_ROBIN} or {WEIGHTED}", settings.strategy)
    return strategy


def changes_of(kind: TopicKind, settings: DoqSettings, weights: dict[str, int]) -> dict[str, Any]:
    """What the settings that were named mean for a topic; the others stay as they are.

    Args:
        weights: that it has.

    Raises:
        BadRequest. Refused: a delayed queue has no groups, so nothing that is about them.
    """
    strategy = strategy_of(settings)
    if kind is TopicKind.TIMELINE and (settings.strategy or settings.max_unacked):
        raise Refused("a delayed queue has neither strategy nor max_unacked")
    named = settings.model_fields_set
    changes: dict[str, Any] = {}
    if "ack_timeout" in named:
        changes["lease_ms"] = (settings.ack_timeout or ACK_TIMEOUT_SECONDS) * 1_000
    if kind is TopicKind.FAIR and "max_unacked" in named:
        changes["group_in_flight_max"] = settings.max_unacked
    if kind is TopicKind.FAIR and "strategy" in named:
        changes["weights"] = (weights or EQUAL_WEIGHTS) if strategy == WEIGHTED else {}
    return changes


def topic_of(name: str, kind_name: str, settings: DoqSettings) -> Topic:
    """The topic for a new queue. Raises BadRequest, Refused."""
    kind = KINDS[kind_name]
    changes = {"lease_ms": ACK_TIMEOUT_SECONDS * 1_000} | changes_of(kind, settings, {})
    if kind is TopicKind.FAIR:
        changes["group_order"] = GroupOrder.PRIORITY
    return Topic(name, kind, on_duplicate=OnDuplicate.KEEP, **changes).check()


def is_queue(topic: Topic) -> bool:
    """True if DOQ's clients can use the topic."""
    return topic.kind in TYPES


def settings_of(topic: Topic) -> dict[str, Any]:
    """What a topic is like in DOQ's words."""
    settings: dict[str, Any] = {"ack_timeout": -(-topic.lease_ms // 1_000)}
    if topic.kind is TopicKind.FAIR:
        settings["strategy"] = WEIGHTED if topic.weights else ROUND_ROBIN
        settings["max_unacked"] = topic.group_in_flight_max
    return settings


def describe(topic: Topic, stats: dict[str, Any], rates: dict[str, float]) -> dict[str, Any]:
    """A queue as GET shows it."""
    ready, unacked = stats["scheduled"], stats["leased"]
    return {
        "name": topic.name,
        "type": TYPES[topic.kind],
        "settings": settings_of(topic),
        **rates,
        "ready": ready,
        "unacked": unacked,
        "total": ready + unacked,
    }
