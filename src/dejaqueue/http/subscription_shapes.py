"""Shapes of what is sent and answered about subscriptions.

Room: http. As shapes.py: for the API's description; what a value may be is checked by the broker.
See: routes/subscriptions.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dejaqueue import limits
from dejaqueue.http.shapes import SeekFilter, Shape


class SubscriptionSettings(Shape):
    """Settings of a subscription; those that are not given are the topic's."""

    order: Literal["due", "priority", "groups", "arrival"] | None = None
    start: Literal["new", "live", "beginning"] | int | None = None
    ephemeral_ms: int | None = Field(
        None,
        ge=0,
        le=limits.EPHEMERAL_MS_MAX,
        description="It ends when nobody has consumed it for so long; 0 = it does not.",
    )
    tags_any: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    tags_all: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    tags_none: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    lease_ms: int | None = Field(None, ge=limits.LEASE_MS_MIN, le=limits.LEASE_MS_MAX)
    lease_ahead_ms: int | None = Field(None, ge=0, le=limits.LEASE_AHEAD_MS_MAX)
    spike_ahead_ms: int | None = Field(None, ge=0, le=limits.SPIKE_AHEAD_MS_MAX)
    weights: dict[str, int] | None = None
    group_in_flight_max: int | None = Field(None, ge=0, le=limits.CREDIT_MAX)
    group_runs: bool | None = None
    max_attempts: int | None = Field(None, ge=0, le=limits.ATTEMPTS_MAX)
    dead_letter: str | None = None
    backoff_ms: int | None = Field(None, ge=0, le=limits.BACKOFF_MS_MAX)
    backoff_factor: float | None = Field(None, ge=1, le=100)
    backoff_max_ms: int | None = Field(None, ge=0, le=limits.BACKOFF_MS_MAX)
    backoff_jitter: float | None = Field(None, ge=0, le=1)
    assignment: Literal["shared", "exclusive"] | None = None
    paused: bool | None = None


class SubscriptionShown(BaseModel):
    """A subscription with the settings that it has of its own."""

    model_config = ConfigDict(extra="allow")

    name: str
    order: str
    start: str | int


class Subscriptions(Shape):
    """The named subscriptions of a topic."""

    subscriptions: list[SubscriptionShown]


class Seek(Shape):
    """Where a subscription goes to."""

    to: Literal["beginning", "end"] | int = Field(
        description="Or a time, UTC milliseconds: when messages came in, in order of arrival; "
        "else when they are due."
    )
    where: SeekFilter | None = Field(None, description="Of these messages alone; as of move.")


class SeekResult(Shape):
    """What a seek did."""

    replayed: int = Field(description="Messages that were done and came back.")
    passed: int = Field(description="Messages that waited and are done now.")
    is_finished: bool = Field(description="False: call again, there is more.")
