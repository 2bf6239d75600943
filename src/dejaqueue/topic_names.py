"""Names of topics, of their shards and of their subscriptions, and what they are told apart by.

Room: vocabulary; pure.
Holds: no topic can be called as a shard or a subscription is, so one name says which is meant.
See: model.py; docs/reference/semantics.md.
"""

from __future__ import annotations

import re

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.subscriptions import check_subscription_name

_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")


def check_topic_name(name: object, field: str = "topic.name") -> str:
    """Return the name, or raise BadRequest if no topic may be called so."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in {".", ".."}:
        raise BadRequest(field, "1 to 255 characters of A-Z a-z 0-9 . _ -", name)
    return name


_SHARD = re.compile(r"(.+)=(\d{1,3})-(\d{1,3})")


def shard_name(topic: str, shard: int, spread: int) -> str:
    """What one shard of a topic is called, between brokers and clients that go there themselves.

    Shard s of n has the partitions p with p % n = s. No topic can be called so.

    >>> shard_name("reminders", 1, 3)
    'reminders=1-3'
    """
    return f"{topic}={shard}-{spread}"


def parse_shard(name: str) -> tuple[str, int, int] | None:
    """Topic, shard and spread of a shard's name; None if it is not one.

    >>> parse_shard("reminders=1-3"), parse_shard("reminders")
    (('reminders', 1, 3), None)
    """
    match = _SHARD.fullmatch(name) if "=" in name else None
    if match is None:
        return None
    return match[1], int(match[2]), int(match[3])


def subscription_name(topic: str, subscription: str) -> str:
    """What a subscription of a topic is called where a topic is consumed or looked at; "" = the
    unnamed one. No topic can be called so.

    >>> subscription_name("orders", "billing")
    'orders@billing'
    """
    return f"{topic}@{subscription}" if subscription else topic


def parse_subscription(name: str) -> tuple[str, str]:
    """The topic, or shard of one, of a name that may be a subscription's, and the subscription.

    >>> parse_subscription("orders@billing"), parse_subscription("orders")
    (('orders', 'billing'), ('orders', ''))
    >>> parse_subscription("orders@billing=1-3")
    ('orders=1-3', 'billing')
    """
    if "@" not in name:
        return name, ""
    shard = parse_shard(name)
    topic, _, subscription = (name if shard is None else shard[0]).partition("@")
    return (topic if shard is None else shard_name(topic, *shard[1:])), subscription


def topic_of(name: str) -> str:
    """The topic of a name that may be a shard's."""
    shard = parse_shard(name)
    return name if shard is None else shard[0]


def check_served_name(name: object, field: str = "topic.name") -> str:
    """Return the name of a topic, of a subscription, or of a shard of one, or raise BadRequest."""
    if isinstance(name, str) and "@" in name:
        served, subscription = parse_subscription(name)
        check_served_name(served, field)
        check_subscription_name(subscription, field)
        return name
    shard = parse_shard(name) if isinstance(name, str) else None
    if shard is not None and shard[1] < shard[2] <= limits.SPREAD_MAX:
        check_topic_name(shard[0], field)
        return str(name)
    return check_topic_name(name, field)
