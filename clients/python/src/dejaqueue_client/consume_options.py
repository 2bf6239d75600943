"""What a consumer was asked for, checked.

Room: client. Values only.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dejaqueue_client import limits
from dejaqueue_client.inputs import check_lease_ms, check_whole, filter_tags
from dejaqueue_client.topic_names import check_served_name, check_topic_name, subscription_name

PREFETCH = 100
"""Messages of one request: what is not handed over when a consumer is closed goes back, and that
counts as an attempt over HTTP; so fewer than DejaQ's other client takes."""


@dataclass(frozen=True)
class ConsumeOptions:
    """What a consumer was asked for.

    Attributes:
        source: the topic, or `topic@subscription`.
        name: of the consumer; its own, so that an exclusive partition is one consumer's.
        lease_ms: 0 = as the topic says.
        idle_ms: None = wait for ever.
        max_messages: None = no end.
        tags: fields of a lease that choose by tags.
    """

    source: str
    name: str
    prefetch: int
    lease_ms: int
    auto_extend: bool
    auto_ack: bool
    until_settled: bool
    idle_ms: int | None
    max_messages: int | None
    tags: dict[str, list[str]]


def consume_options(
    topic: str, rows_max: int, given: dict[str, Any], client_name: str
) -> ConsumeOptions:
    """The options of a consumer. Raises BadRequest.

    Args:
        rows_max: messages of a batch, at most.
        given: the arguments of `consume`.
    """
    source = subscription_name(check_topic_name(topic), given["subscription"])
    check_served_name(source)
    check_whole("batch_rows", rows_max, 1, limits.LEASE_ROWS_MAX)
    idle_ms, max_messages = given["idle_ms"], given["max_messages"]
    tags: dict[str, Sequence[str]] = {
        name: filter_tags(given[name], name) for name in ("tags_any", "tags_all", "tags_none")
    }
    # A name of its own: requests with equal options are one consumer to the broker.
    own = f"{(client_name or 'client')[:200]}-{secrets.token_hex(4)}"
    return ConsumeOptions(
        source,
        given["name"] or own,
        check_whole("prefetch", given["prefetch"], 1, limits.CREDIT_MAX),
        0 if given["lease_ms"] == 0 else check_lease_ms(given["lease_ms"]),
        bool(given["auto_extend"]),
        bool(given["auto_ack"]),
        bool(given["until_settled"]),
        None if idle_ms is None else check_whole("idle_ms", idle_ms, 0, limits.INSTANT_MS_MAX),
        None
        if max_messages is None
        else check_whole("max_messages", max_messages, 0, limits.SEQUENCE_MAX),
        {name: list(words) for name, words in tags.items() if words},
    )
