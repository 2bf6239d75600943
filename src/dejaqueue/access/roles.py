"""Roles, and who has which of them for which topics.

Room: access. Pure values.
Holds: what is not granted is refused; the refusal names role and topic, never a key.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from dejaqueue.errors import Forbidden
from dejaqueue.model import topic_of


class Role(StrEnum):
    """What a caller may do with a topic; none includes another but for admin, which has all."""

    PRODUCE = "produce"
    """Send, move and cancel messages; transactions of these."""
    CONSUME = "consume"
    """Lease, ack, nack and extend."""
    MANAGE = "manage"
    """Look (peek, counts, stats) and administer a topic: make, change, purge, redrive, cron."""
    ADMIN = "admin"
    """Everything, and API keys."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for the topics whose name matches a pattern (`*`, `?`), as in `orders.*`."""

    role: Role
    pattern: str

    def allows(self, role: Role, topic: str) -> bool:
        """True if it gives this role for this topic."""
        return self.role in (role, Role.ADMIN) and self.covers(topic)

    def covers(self, topic: str) -> bool:
        """True if the topic's name matches the pattern; a shard is its topic."""
        return self.pattern == "*" or _matcher(self.pattern).match(topic_of(topic)) is not None

    def __str__(self) -> str:
        return f"{self.role.value}:{self.pattern}"


@lru_cache(maxsize=16_384)
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls.

    Attributes:
        name: of the API key, or `anonymous` while the broker has none; for logs and the audit log.
        grants: what they may do.
        key_id: of the API key; "" = none.
    """

    name: str
    grants: tuple[Grant, ...]
    key_id: str = ""

    def may(self, role: Role, topic: str) -> bool:
        """True if they have the role for the topic."""
        return any(grant.allows(role, topic) for grant in self.grants)

    def sees(self, topic: str) -> bool:
        """True if they have any role for the topic: they may know that it is there."""
        return any(grant.covers(topic) for grant in self.grants)

    def require(self, role: Role, topic: str) -> None:
        """Raise Forbidden unless they have the role for the topic.

        Args:
            topic: its name; "" = something that belongs to no topic, which a pattern `*` covers.
        """
        if not self.may(role, topic):
            where = f"topic {topic}" if topic else "the broker"
            raise Forbidden(f"{self.name}: no role {role.value!r} for {where}")


EVERYBODY = Principal("anonymous", (Grant(Role.ADMIN, "*"),))
"""Who calls while the broker has no API keys."""

PEER = Principal("a broker", ())
"""Another broker of the cluster, in what only brokers say to one another."""
