"""Which role a call needs, on which topic: one table for both servers.

Room: access. Pure values; the servers ask `require` before they call the broker.
Holds: what is not in the table is not served (tests/integration/test_authorisation.py tries every
call of both servers as every role).
See: docs/guides/security.md, "Roles".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dejaqueue.access.roles import PEER, Principal, Role, no_role
from dejaqueue.access.senders import Sender
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
        by_sender: the call is told who calls.
        own: a grant for the caller's own messages is enough, and keeps the call to these.
        whole: with which of its roles it reaches others' messages; none = with each.
    """

    roles: tuple[Role, ...] = ()
    field: str = "topic"
    audited: bool = False
    optional: bool = False
    peers: bool = False
    also: Topics | None = None
    by_sender: bool = False
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


def _letters_go_to(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """Who has the dead of a topic sent elsewhere writes there."""
    if body.get("dead_letter"):
        yield (MANAGE,), _text(body, "dead_letter")


def _redriven_to(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """Without `to`, letters go back to where they came from: see `may_receive`."""
    if body.get("to") is not None:
        yield (PRODUCE, MANAGE), _text(body, "to")


def _participants(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """A transaction is decided by who may send to or consume each of its topics."""
    yield (PRODUCE, CONSUME), _text(body, "transaction").partition("/")[0]
    yield from _places(body)


def _epoch(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """An epoch of a sink is committed by who may send to each of its topics."""
    yield (PRODUCE, CONSUME), _text(body, "topic")
    yield from _places(body)


def _places(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    places = body.get("participants", [])
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise BadRequest("participants", "a list of topic/partition", places)
    for topic in sorted({place.partition("/")[0] for place in places}):
        yield (PRODUCE, CONSUME), topic


def _named_or_found(body: Body) -> tuple[tuple[Role, ...], str]:
    """Messages by id or key are a producer's to change, by filter a manager's."""
    return (MANAGE if "where" in body else PRODUCE,), _text(body, "topic")


def may_look(principal: Principal, topic: str) -> bool:
    """True if the caller may see the numbers of a topic."""
    return any(principal.may(role, topic) for role in LOOKS)


def may_receive(principal: Principal) -> Callable[[str], bool]:
    """Which topics the caller's redrives may send letters to; others stay where they are."""
    return lambda topic: principal.may(PRODUCE, topic) or principal.may(MANAGE, topic)


def _cron_topic(body: Body) -> Iterator[tuple[tuple[Role, ...], str]]:
    """The next firings of an entry that is in the call need no topic."""
    if body.get("entry") is None:
        yield (MANAGE,), _text(body, "topic")


# --- Flight ---------------------------------------------------------------------------------------

_CHANGES = Rule((MANAGE,), audited=True)
_PUTS_ENTRIES = Rule((MANAGE,), audited=True, by_sender=True)
_CHANGES_ROWS = Rule((MANAGE,), audited=True, by_sender=True, own=True)
_LOOKS = Rule(LOOKS)
_LOOKS_AT_ROWS = Rule(LOOKS, by_sender=True, own=True)
_READS = Rule((MANAGE,))
"""Shows payloads, or what they will be."""
_KEYS_LISTED = Rule((ADMIN,), field=BROKER)
_KEYS = Rule((ADMIN,), field=BROKER, audited=True)
_DECIDES = Rule(also=_participants, by_sender=True)
_SERVERS = Rule((ADMIN,), field=BROKER, audited=True)

FLIGHT_ACTIONS: dict[str, Rule] = {
    "create_topic": Rule((MANAGE,), "name", audited=True, also=_letters_go_to),
    "alter_topic": Rule((MANAGE,), "name", audited=True, also=_letters_go_to),
    "delete_topic": Rule((MANAGE,), "name", audited=True),
    "describe_topic": Rule(ANY, "name"),
    "list_topics": Rule(ANY, "name", optional=True),
    "redrive": Rule((MANAGE,), audited=True, also=_redriven_to),
    "stats": Rule(LOOKS, optional=True),
    "assignments": Rule(LOOKS, "name"),
    "cluster": Rule(ANY, "topic", optional=True),
    "remove_node": _SERVERS,
    "repair_node": _SERVERS,
    "node_progress": Rule((ADMIN,), field=BROKER),
    "check_cluster": _SERVERS,
    "scan_ranges": Rule((MANAGE,), "name"),
    "history_files": Rule((MANAGE,), "name"),
    "claim": Rule((CONSUME,)),
    "extend_claims": Rule((CONSUME,)),
    "ack_claims": Rule((CONSUME,)),
    "counts": _LOOKS_AT_ROWS,
    "histogram": _LOOKS_AT_ROWS,
    "move_where": _CHANGES_ROWS,
    "cancel_where": _CHANGES_ROWS,
    "clock": Rule(),
    "cron_put": _PUTS_ENTRIES,
    "cron_list": _READS,
    "cron_get": _READS,
    "cron_pause": _CHANGES,
    "cron_drop": _CHANGES,
    "cron_run": _CHANGES,
    "cron_next": Rule(also=_cron_topic),
    "begin_transaction": Rule((PRODUCE, CONSUME), by_sender=True),
    "commit_transaction": _DECIDES,
    "commit_epoch": Rule(also=_epoch, by_sender=True),
    "abort_transaction": _DECIDES,
    "transactions": _LOOKS,
    "tell_transaction": Rule(peers=True),
    "ask_transaction": Rule(peers=True),
    "note_write": Rule((PRODUCE,), by_sender=True),
    "writes": Rule((PRODUCE, MANAGE), by_sender=True, own=True, whole=(MANAGE,)),
    "create_key": _KEYS,
    "list_keys": _KEYS_LISTED,
    "revoke_key": _KEYS,
}
"""The rule of each action."""

FLIGHT_TICKETS: dict[str, Rule] = {
    "peek": _LOOKS_AT_ROWS,
    "scan": _READS,
    "history": _READS,
    "claim": Rule((CONSUME,)),
}
"""The rule of each operation of DoGet."""

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


# --- HTTP -----------------------------------------------------------------------------------------

PUBLIC = Rule()
"""Needs no key: probes, and the description of the API, the same for every broker."""

_SENDS, _TAKES = Rule((PRODUCE,)), Rule((CONSUME,))
_NAMED = Rule(also=lambda body: iter([_named_or_found(body)]), own=True)
_BROKER_LOOKS = Rule(LOOKS, field=BROKER)
_TOPIC = "/v1/topics/{topic}"
_DOQ, _DOQ_MESSAGE = "/API/v1/queues/{queue_name}", "/API/v1/queues/{queue_name}/messages/{id}"


def _doq(*roles: Role, audited: bool = False) -> Rule:
    return Rule(roles, field="queue_name", audited=audited)


HTTP_ROUTES: dict[tuple[str, str], Rule] = {
    ("GET", "/livez"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
    ("GET", "/healthz"): PUBLIC,
    ("GET", "/openapi.json"): PUBLIC,
    ("GET", "/docs"): PUBLIC,
    ("GET", "/stats"): _BROKER_LOOKS,
    ("GET", "/metrics"): _BROKER_LOOKS,
    ("GET", "/v1/keys"): _KEYS_LISTED,
    ("POST", "/v1/keys"): _KEYS,
    ("DELETE", "/v1/keys/{key}"): _KEYS,
    ("GET", "/v1/topics"): Rule(ANY, optional=True),
    ("POST", "/v1/topics"): Rule((MANAGE,), "name", audited=True, also=_letters_go_to),
    ("GET", _TOPIC): Rule(ANY),
    ("PATCH", _TOPIC): Rule((MANAGE,), audited=True, also=_letters_go_to),
    ("DELETE", _TOPIC): _CHANGES,
    ("POST", f"{_TOPIC}/pause"): _CHANGES,
    ("POST", f"{_TOPIC}/resume"): _CHANGES,
    ("POST", f"{_TOPIC}/purge"): _CHANGES,
    ("GET", "/v1/stats"): _BROKER_LOOKS,
    ("GET", f"{_TOPIC}/assignments"): _LOOKS,
    ("GET", f"{_TOPIC}/consumers"): _LOOKS,
    ("GET", f"{_TOPIC}/counts"): _LOOKS_AT_ROWS,
    ("GET", f"{_TOPIC}/histogram"): _LOOKS_AT_ROWS,
    ("GET", f"{_TOPIC}/stats"): _LOOKS,
    ("GET", f"{_TOPIC}/messages"): _LOOKS_AT_ROWS,
    ("GET", f"{_TOPIC}/messages/{{id}}"): _LOOKS_AT_ROWS,
    ("POST", f"{_TOPIC}/move"): _NAMED,
    ("POST", f"{_TOPIC}/cancel"): _NAMED,
    ("GET", f"{_TOPIC}/dead-letters"): _LOOKS,
    ("POST", f"{_TOPIC}/dead-letters/purge"): _CHANGES,
    ("POST", f"{_TOPIC}/dead-letters/redrive"): Rule((MANAGE,), audited=True, also=_redriven_to),
    ("POST", "/v1/cron/preview"): Rule(),
    ("POST", "/v1/transactions"): Rule((PRODUCE, CONSUME)),
    ("POST", "/v1/transactions/commit"): Rule(also=_participants),
    ("POST", "/v1/transactions/abort"): Rule(also=_participants),
    ("GET", f"{_TOPIC}/transactions"): _LOOKS,
    ("GET", f"{_TOPIC}/cron"): _READS,
    ("POST", f"{_TOPIC}/cron"): _CHANGES,
    ("GET", f"{_TOPIC}/cron/{{name}}"): _READS,
    ("PUT", f"{_TOPIC}/cron/{{name}}"): _CHANGES,
    ("DELETE", f"{_TOPIC}/cron/{{name}}"): _CHANGES,
    ("GET", f"{_TOPIC}/cron/{{name}}/firings"): _READS,
    ("POST", f"{_TOPIC}/cron/{{name}}/pause"): _CHANGES,
    ("POST", f"{_TOPIC}/cron/{{name}}/resume"): _CHANGES,
    ("POST", f"{_TOPIC}/cron/{{name}}/run"): _CHANGES,
    ("POST", f"{_TOPIC}/messages"): _SENDS,
    ("POST", f"{_TOPIC}/lease"): _TAKES,
    ("POST", f"{_TOPIC}/ack"): _TAKES,
    ("POST", f"{_TOPIC}/nack"): _TAKES,
    ("POST", f"{_TOPIC}/extend"): _TAKES,
    ("GET", "/API/v1/queues"): Rule(LOOKS, "queue_name", optional=True),
    ("POST", "/API/v1/queues"): Rule((MANAGE,), "name", audited=True),
    ("GET", _DOQ): _doq(*LOOKS),
    ("PUT", _DOQ): _doq(MANAGE, audited=True),
    ("DELETE", _DOQ): _doq(MANAGE, audited=True),
    ("POST", "/API/v1/ids"): Rule(),
    ("GET", "/API/v1/cluster/servers"): Rule((MANAGE,), field=BROKER),
    ("POST", f"{_DOQ}/messages"): _doq(PRODUCE),
    ("GET", f"{_DOQ}/messages"): Rule((CONSUME,), "queue_name", audited=True, takes=True),
    ("GET", _DOQ_MESSAGE): _doq(MANAGE),
    ("DELETE", _DOQ_MESSAGE): _doq(PRODUCE),
    ("POST", f"{_DOQ_MESSAGE}/ack"): _doq(CONSUME),
    ("POST", f"{_DOQ_MESSAGE}/nack"): _doq(CONSUME),
    ("POST", f"{_DOQ_MESSAGE}/touch"): _doq(CONSUME),
    ("PUT", f"{_DOQ_MESSAGE}/priority"): _doq(PRODUCE),
}
"""The rule of each route, by method and path; the routes themselves ask `Principal.require`."""


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
        return answer | {"topics": {n: row for n, row in rows if may_look(principal, n)}}
    return answer
