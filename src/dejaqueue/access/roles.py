"""Roles, and which principal has which of them for which topics.

Room: access. Pure values.
Holds: what is not granted is refused; the refusal names role and topic, never a key.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.errors import Forbidden
from dejaqueue.topic_names import parse_subscription, topic_of


class Role(StrEnum):
    """What a caller may do with a topic; none includes another but for admin, which has all."""

    PRODUCE = "produce"
    """Send, move and cancel messages; transactions of these."""
    CONSUME = "consume"
    """Lease, ack, nack and extend."""
    OBSERVE = "observe"
    """Look, and change nothing: counts, stats, metrics, messages without their payloads."""
    MANAGE = "manage"
    """Look (peek, counts, stats) and administer a topic: make, change, purge, redrive, cron."""
    ADMIN = "admin"
    """Everything, and API keys."""


DENY = "deny:"
"""Begins the text of a grant that takes a role away."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for the topics whose name matches a pattern (`*`, `?`), as in `orders.*`.

    Attributes:
        denies: it takes the role away there, whatever else is granted; admin takes all roles.
        own: what it lets the caller do reaches messages that the caller sent, and no others.
    """

    role: Role
    pattern: str
    denies: bool = False
    own: bool = False

    def concerns(self, role: Role, topic: str) -> bool:
        """True if it gives this role for this topic, or takes it away."""
        return self.role in (role, Role.ADMIN) and self.covers(topic)

    def covers(self, topic: str) -> bool:
        """True if the topic's name matches the pattern; a shard is its topic, and so is one of its
        subscriptions."""
        if self.pattern == "*":
            return True
        name = topic_of(parse_subscription(topic)[0])
        return _matcher(self.pattern).match(name) is not None

    def __str__(self) -> str:
        own = "own:" if self.own else ""
        return f"{DENY if self.denies else ''}{self.role.value}:{own}{self.pattern}"


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

    @property
    def sender(self) -> Sender:
        """What they send is kept under this name."""
        return _sender(self.name, own=False)

    def sender_for(self, topic: str, *roles: Role) -> Sender:
        """As `sender`, for calls that any of these roles lets them make on a topic: limited to
        their own messages, unless a grant of such a role is not."""
        for role in roles:
            if self._has(role, topic, own=False):
                return _sender(self.name, own=False)
        return _sender(self.name, own=True)

    def may(self, role: Role, topic: str, *, own: bool = False) -> bool:
        """True if they have the role for the topic.

        Args:
            own: the call keeps to the caller's own messages if it has to (`sender_for`), so that
                a grant of these is enough; each call of a producer does.
        """
        return self._has(role, topic, own=own or role is Role.PRODUCE)

    def _has(self, role: Role, topic: str, *, own: bool) -> bool:
        is_granted = False
        for grant in self.grants:
            if grant.concerns(role, topic):
                if grant.denies:
                    return False
                is_granted = is_granted or own or not grant.own
        return is_granted

    def sees(self, topic: str) -> bool:
        """True if they have any role for the topic: they may know that it is there."""
        return any(self.may(role, topic, own=True) for role in Role)

    def require(self, role: Role, topic: str, *, own: bool = False) -> None:
        """Raise Forbidden unless they have the role for the topic.

        Args:
            topic: its name; "" = something that belongs to no topic, which a pattern `*` covers.
            own: as for `may`.
        """
        if not self.may(role, topic, own=own):
            raise no_role(self, repr(role.value), topic)


@lru_cache(maxsize=16_384)
def _sender(name: str, *, own: bool) -> Sender:
    """The sender of a principal's name; kept, as each request asks for it."""
    sender = NOBODY if name == EVERYBODY.name else Sender(name)
    return replace(sender, own=True) if own else sender


def no_role(principal: Principal, wanted: str, topic: str) -> Forbidden:
    """The refusal. Of a name that can be no topic's only the beginning: a text that is longer than
    gRPC lets an error be would arrive as an error of gRPC's."""
    most = limits.TOPIC_NAME_BYTES_MAX
    shown = topic if len(topic) <= most else f"{topic[:most]}…"
    where = f"topic {shown}" if topic else "the broker"
    return Forbidden(f"{principal.name}: no role {wanted} for {where}")


OWNABLE = (Role.PRODUCE, Role.MANAGE)
"""Roles that can be granted for the caller's own messages."""


@dataclass(frozen=True, slots=True)
class TokenPrincipal(Principal):
    """Who calls with a token.

    Attributes:
        ends_ms: the token's end, with the leeway.
        role_ids: of the keys that gave the grants: without one of them, it is somebody else.
    """

    ends_ms: int = 0
    role_ids: tuple[str, ...] = ()


EVERYBODY = Principal("anonymous", (Grant(Role.ADMIN, "*"),))
"""Who calls while the broker has no API keys."""

PEER = Principal("a broker", ())
"""Another broker of the cluster, in what only brokers say to one another."""
