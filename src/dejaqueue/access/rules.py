"""What a rule of access is: which roles a call needs, on which topics.

Room: access. Pure values; the servers ask `require` before they call the broker.
Holds: a rule that names no topic is about the broker itself, which only the pattern `*` covers.
See: calls.py and routes.py, the tables whose rows have one rule each; docs/guides/security.md,
"Roles"; tests/integration/test_authorisation.py, which tries every call as every role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dejaqueue.access.roles import PEER, Principal, Role, no_role
from dejaqueue.access.senders import Requester, Sender
from dejaqueue.errors import BadRequest, Forbidden
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream

BROKER = ""
"""Stands for the broker itself, where a call belongs to no topic; the pattern `*` covers it."""

PRODUCE, CONSUME, MANAGE, ADMIN = Role.PRODUCE, Role.CONSUME, Role.MANAGE, Role.ADMIN
LOOKS = (Role.OBSERVE, MANAGE)
"""Who may look may also administer, or may not."""
ANY = tuple(Role)
"""Whoever has something to do with the topic may know of it."""

Body = Mapping[str, Any]
Topics = Callable[[Body], Iterator[tuple[tuple[Role, ...], str]]]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a call needs.

    Attributes:
        roles: any of them is enough; none = any key.
        field: of the body or the path, which names the topic; "" = the broker itself.
        audited: it administers: the audit log has a line of each.
        takes: it is a GET, and takes something away: in the audit log too, but of many at once only
            some; and no browser may call it for a link or a picture (access/pages.py).
        peers: only brokers of the cluster say it to one another.
        optional: without the field the answer is about all topics, and shows those that the caller
            has one of the roles for.
        also: what else it needs.
        own: a grant for the caller's own messages is enough, and keeps the call to these.
        whole: with which of its roles it reaches others' messages; none = with each.
    """

    roles: tuple[Role, ...] = ()
    field: str = "topic"
    audited: bool = False
    optional: bool = False
    peers: bool = False
    also: Topics | None = None
    own: bool = False
    whole: tuple[Role, ...] = ()
    takes: bool = False

    def needs(self, body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
        """Yield (roles, any of which is enough; topic) of a call. Raises BadRequest."""
        if self.roles and not (self.optional and body.get(self.field) is None):
            # No name at all is the broker's to refuse, in its own words.
            named = body.get(self.field)
            yield self.roles, named if isinstance(named, str) else BROKER
        if self.also is not None:
            yield from self.also(body)

    def require(self, principal: Principal, body: Body) -> None:
        """Raise Forbidden unless the caller may do this. Raises BadRequest."""
        if self.peers and principal is not PEER:
            raise Forbidden(f"{principal.name}: only brokers of the cluster may say this")
        for roles, topic in self.needs(body):
            require_any(principal, roles, topic, own=self.own)

    def sender(self, principal: Principal, body: Body) -> Sender:
        """Who calls, and whether that is limited to the caller's own messages."""
        named = body.get(self.field)
        topic = named if isinstance(named, str) else BROKER
        return principal.sender_for(topic, *(self.whole or self.roles))

    def requester(self, principal: Principal, body: Body, *, is_near: bool = False) -> Requester:
        """What the call's function is to know of the caller."""
        return Requester(self.sender(principal, body), may_receive(principal), is_near)


def require_any(
    principal: Principal, roles: tuple[Role, ...], topic: str, *, own: bool = False
) -> None:
    """Raise Forbidden unless the caller has one of the roles for the topic; `own` as in `may`."""
    own = own or roles == ANY  # to know of the topic takes any grant for it
    if len(roles) == 1:
        principal.require(roles[0], topic, own=own)
    elif not any(principal.may(role, topic, own=own) for role in roles):
        wanted = " or ".join(repr(role.value) for role in roles)
        raise no_role(principal, wanted, topic)


def _text(body: Body, field: str) -> str:
    name = body.get(field)
    if not isinstance(name, str):
        raise BadRequest(field, "the name of a topic", name)
    return name


# --- what a call needs beside its topic -----------------------------------------------------------


def letters_go_to(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """To send the dead letters of a topic elsewhere is to write there."""
    if body.get("dead_letter"):
        yield (MANAGE,), _text(body, "dead_letter")
    subscriptions = body.get("subscriptions")
    for values in subscriptions.values() if isinstance(subscriptions, dict) else ():
        if isinstance(values, dict) and values.get("dead_letter"):
            yield (MANAGE,), _text(values, "dead_letter")


def redriven_to(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """Without `to`, letters go back to where they came from: see `may_receive`."""
    if body.get("to") is not None:
        yield (PRODUCE, MANAGE), _text(body, "to")


def decided_topics(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """A transaction is decided by a caller who may send to, or consume, each of its topics."""
    yield (PRODUCE, CONSUME), _text(body, "transaction").partition("/")[0]
    yield from _places(body)


def epoch_topics(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """An epoch of a sink is committed by a caller who may send to each of its topics."""
    yield (PRODUCE, CONSUME), _text(body, "topic")
    yield from _places(body)


def _places(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    places = body.get("participants", [])
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise BadRequest("participants", "a list of topic/partition", places)
    for topic in sorted({place.partition("/")[0] for place in places}):
        yield (PRODUCE, CONSUME), topic


def named_or_selected(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """Messages by id or key are a producer's to change, by filter a manager's."""
    yield (MANAGE if "where" in body else PRODUCE,), _text(body, "topic")


def may_look(principal: Principal, topic: str) -> bool:
    """True if the caller may see the numbers of a topic."""
    return any(principal.may(role, topic) for role in LOOKS)


def may_receive(principal: Principal) -> Callable[[str], bool]:
    """Which topics the caller's redrives may send letters to; others stay where they are."""
    return lambda topic: principal.may(PRODUCE, topic) or principal.may(MANAGE, topic)


def cron_topic(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """The next firings of an entry that is in the call need no topic."""
    if body.get("entry") is None:
        yield (MANAGE,), _text(body, "topic")


PUBLIC = Rule()
"""Needs no key: probes, and the description of the API, which all brokers share."""

# --- streams -------------------------------------------------------------------------------------

WRITES: dict[str, Role] = {
    "enqueue": PRODUCE,
    "move": PRODUCE,
    "cancel": PRODUCE,
    "ack": CONSUME,
    "nack": CONSUME,
    "extend": CONSUME,
}
"""What each operation of a DoPut stream needs."""


def require_write(principal: Principal, stream: WriteStream) -> Sender:
    """Whose messages the stream sends or reaches. Raises Forbidden: the caller may not open it."""
    role = WRITES[stream.op]
    principal.require(role, stream.topic)
    require_home(principal, stream.transaction)
    return principal.sender_for(stream.topic, role)


def require_home(principal: Principal, transaction: str) -> None:
    """Raise Forbidden unless the caller may begin transactions where this one began; "" = none.

    Asked before the broker is: what it answers depends on whether that topic is there, and where.
    """
    if transaction:
        require_any(principal, (PRODUCE, CONSUME), transaction.partition("/")[0])


def require_consume(principal: Principal, stream: ConsumeStream) -> None:
    """Raise Forbidden unless the caller may open this stream."""
    principal.require(CONSUME, stream.topic)


# --- answers about all topics ---------------------------------------------------------------------


def shown(principal: Principal, action: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Of an answer about all topics, what the caller may see."""
    if action == "list_topics":
        seen = [topic for topic in answer["topics"] if principal.sees(topic["name"])]
        return answer | {"topics": seen}
    if action == "cluster":
        served = [one for one in answer["topics"] if principal.sees(one["topic"])]
        return answer | {"topics": served}
    if action == "stats" and "topics" in answer:
        rows = answer["topics"].items()  # tidy: allow name, because it is a dict's own method
        # Who was refused is of the whole broker, and names principals.
        hidden = () if may_look(principal, "") else ("refused_lately",)
        told = {name: value for name, value in answer.items() if name not in hidden}
        return told | {"topics": {n: row for n, row in rows if may_look(principal, n)}}
    return answer
