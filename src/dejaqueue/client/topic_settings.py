"""The settings of a topic as keyword arguments, for type checkers and editors.

Room: client. Types only: what a value may be is checked by `dejaqueue.Topic`, which also says what
each setting means.
Holds: the names are those of Topic (tests/unit/client/test_topic_settings.py compares them).
See: docs/reference/semantics.md, Topic.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypedDict

from dejaqueue.model import Assignment, GroupOrder, OnDuplicate, TopicKind


class LiveSettings(TypedDict, total=False):
    """Settings that `create_topic` takes and `alter_topic` changes while messages flow."""

    partitions: int | Literal["auto"]
    lease_ms: int
    lease_ahead_ms: int
    spike_ahead_ms: int
    max_payload_bytes: int
    max_delay_ms: int
    max_backlog_count: int
    max_backlog_bytes: int
    producer_rate_max: int
    retention_ms: int
    retention_bytes: int
    retention_keys: bool
    cold_after_ms: int
    weights: dict[str, int]
    group_in_flight_max: int
    group_runs: bool
    max_attempts: int
    dead_letter: str
    backoff_ms: int
    backoff_factor: float
    backoff_max_ms: int
    backoff_jitter: float
    on_duplicate: OnDuplicate | Literal["reject", "keep", "replace"]
    assignment: Assignment | Literal["shared", "exclusive"]
    paused: bool
    auto_partitions: bool
    history: bool
    subscriptions: dict[str, dict[str, Any]]
    labels: dict[str, str]


class TopicSettings(LiveSettings, total=False):
    """Settings that `create_topic` takes; the first four stay as they are."""

    kind: TopicKind | Literal["timeline", "priority", "fair", "cron"]
    ageing_ms: int
    group_order: GroupOrder | Literal["arrival", "priority", "priority_first"]
    spread: int
    unnamed: bool


class SubscriptionSettings(TypedDict, total=False):
    """Settings that `create_subscription` takes; the first two stay as they are."""

    order: Literal["due", "priority", "groups", "arrival"]
    start: Literal["new", "live", "beginning"] | datetime | int
    ephemeral_ms: int
    tags_any: list[str]
    tags_all: list[str]
    tags_none: list[str]
    lease_ms: int
    lease_ahead_ms: int
    spike_ahead_ms: int
    weights: dict[str, int]
    group_in_flight_max: int
    group_runs: bool
    max_attempts: int
    dead_letter: str
    backoff_ms: int
    backoff_factor: float
    backoff_max_ms: int
    backoff_jitter: float
    assignment: Assignment | Literal["shared", "exclusive"]
    paused: bool
