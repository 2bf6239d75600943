"""The words of the contract: topics, message states, row statuses, ids.

Room: vocabulary; pure, imports only `limits` and `errors`.
Holds: an id packs to 63 bits and unpacks to what went in; row statuses keep their numbers for ever.
See: docs/reference/semantics.md.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum, StrEnum
from typing import Any, NewType

from dejaqueue import limits
from dejaqueue.errors import BadRequest

Sequence = NewType("Sequence", int)
"""Number of a message within its partition, from 0, never reused."""
Position = NewType("Position", int)
"""Number of an entry within a partition's journal, from 1, dense."""
PartitionNo = NewType("PartitionNo", int)
"""Number of a partition within its topic, from 0."""
Epoch = NewType("Epoch", int)
"""Number of an ownership of a partition, rising: the fencing token."""
InstantMs = NewType("InstantMs", int)
"""An instant, UTC milliseconds since 1970."""
SpanMs = NewType("SpanMs", int)
"""A length of time in milliseconds."""


class TopicKind(StrEnum):
    """What decides the order of ready messages."""

    TIMELINE = "timeline"
    PRIORITY = "priority"
    FAIR = "fair"
    CRON = "cron"


class MessageState(IntEnum):
    """State of a message in the table (uint8). DONE covers acked, cancelled and never used."""

    DONE = 0
    SCHEDULED = 1
    LEASED = 2


class RowStatus(IntEnum):
    """What happened to one row of a batch (uint8), in order of precedence."""

    OK = 0
    NOT_FOUND = 1
    """No live message of this id or key."""
    LEASED = 2
    """The message is leased: too late to move or cancel it (rule 9)."""
    LEASE_LOST = 3
    """The lease ended, or the message was leased again since (rule 4)."""
    DUPLICATE = 4
    """A live message has this key; its id is given (rule 11)."""


def pack_id(partition: int, sequence: int) -> int:
    """The id of a message: partition << 47 | sequence.

    >>> pack_id(1, 5)
    140737488355333
    """
    return partition << limits.SEQUENCE_BITS | sequence


def unpack_id(message_id: int) -> tuple[int, int]:
    """Partition and sequence of an id.

    >>> unpack_id(140737488355333)
    (1, 5)
    """
    return message_id >> limits.SEQUENCE_BITS, message_id & limits.SEQUENCE_MAX


_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")


def check_topic_name(name: object) -> str:
    """Return the name, or raise BadRequest if no topic may be called so."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in {".", ".."}:
        raise BadRequest("topic.name", "1 to 255 characters of A-Z a-z 0-9 . _ -", name)
    return name


@dataclass(frozen=True, slots=True)
class Topic:
    """Settings of a topic. What can change later is what `CHANGEABLE` names.

    >>> Topic("reminders").lease_ms
    30000
    """

    name: str
    kind: TopicKind = TopicKind.TIMELINE
    partitions: int = 1
    """How many partitions; one gives a total order, several more throughput."""
    lease_ms: int = 30_000
    """How long a delivered message belongs to its consumer."""
    lease_ahead_ms: int = 25
    """How long before its due time a message may be sent to a client, which holds it until then."""
    max_payload_bytes: int = limits.PAYLOAD_BYTES_DEFAULT
    """Bytes of one payload at most."""
    max_delay_ms: int = 0
    """The furthest that a message may be due from now; 0 = no limit."""
    max_backlog_count: int = 0
    """Live messages at most; 0 = no limit (rule 14)."""
    max_backlog_bytes: int = 0
    """Payload bytes of live messages at most; 0 = no limit (rule 14)."""

    def check(self) -> Topic:
        """Return self, or raise BadRequest naming the field, the limit and the value."""
        check_topic_name(self.name)
        try:
            kind = TopicKind(self.kind)
        except ValueError:
            raise BadRequest("topic.kind", "one of timeline", self.kind) from None
        if kind is not TopicKind.TIMELINE:
            raise BadRequest("topic.kind", "timeline (the only kind of this version)", str(kind))
        bounds = {
            "partitions": (1, limits.PARTITIONS_MAX),
            "lease_ms": (limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
            "lease_ahead_ms": (0, limits.LEASE_AHEAD_MS_MAX),
            "max_payload_bytes": (0, limits.PAYLOAD_BYTES_MAX),
            "max_delay_ms": (0, limits.INSTANT_MS_MAX),
            "max_backlog_count": (0, limits.SEQUENCE_MAX),
            "max_backlog_bytes": (0, 1 << 62),
        }
        for field, (low, high) in bounds.items():
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise BadRequest(f"topic.{field}", f"a whole number from {low} to {high}", value)
        return replace(self, kind=kind)

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON values."""
        return asdict(self) | {"kind": str(self.kind)}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Topic:
        """The checked topic of these settings; an unknown one is refused (rule 15)."""
        known = [field.name for field in fields(Topic)]
        if "name" not in values:
            raise BadRequest("topic.name", "a name", None)
        for name in values:
            if name not in known:
                raise BadRequest(f"topic.{name}", f"one of {', '.join(known)}", values[name])
        return Topic(**values).check()


CHANGEABLE = (
    "lease_ms",
    "lease_ahead_ms",
    "max_payload_bytes",
    "max_delay_ms",
    "max_backlog_count",
    "max_backlog_bytes",
)
"""What `alter_topic` may change while messages flow; name, kind and partitions stay."""
