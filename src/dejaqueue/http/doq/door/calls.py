"""DOQ's calls with one request and one answer, over gRPC.

Room: http. On the event loop. Each function gets a request of doq.proto and returns the fields of
its answer; who may make which call is said by the route of the HTTP API that does the same.
Holds: what is refused here is what the HTTP API refuses, for the same reasons.
See: streams.py for the two calls with many; access/routes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from dejaqueue.access import rules
from dejaqueue.access.quotas import Account
from dejaqueue.access.roles import Principal, Role
from dejaqueue.access.routes import ROUTES
from dejaqueue.access.rules import Rule
from dejaqueue.access.senders import Sender
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest
from dejaqueue.http.doq import catalogue, topics
from dejaqueue.http.doq.rows import Row
from dejaqueue.http.doq.shapes import DEFAULT_GROUP, IDS_MAX, DoqNewMessage, DoqSettings
from dejaqueue.http.doq.state import Doq
from dejaqueue.http.flow import Flow
from dejaqueue.http.service import Service

STRATEGIES = ("", topics.ROUND_ROBIN, topics.WEIGHTED)
"""By their number."""
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DoorState:
    """What all calls share.

    Attributes:
        flow: gives the application's flow; call it on the event loop.
    """

    service: Service
    doq: Doq
    flow: Callable[[], Flow]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call.

    Attributes:
        peer: address and port.
        bearer: the API key that came with it; None = there was none.
        account: whose quotas the call counts for.
    """

    principal: Principal
    peer: str
    bearer: str | None
    account: Account

    def sender(self, queue_name: str) -> Sender:
        """As whom they send, and whether that keeps them to their own messages."""
        return self.principal.sender_for(queue_name, Role.PRODUCE)


Function = Callable[[DoorState, Caller, Any], Awaitable[Fields]]


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the table.

    Attributes:
        route: the name of the HTTP route that does the same.
        field: of the request, which names the queue; "" = there is none.
    """

    function: Function
    route: str
    field: str = "queueName"

    @property
    def rule(self) -> Rule:
        """Who may make it."""
        return ROUTES[self.route].rule

    @property
    def is_audited(self) -> bool:
        """It administers. (That GETs are written down which take something is not for gRPC.)"""
        return self.rule.audited and not self.rule.takes

    def require(self, principal: Principal, asked: Any) -> str:
        """The queue that a request is about. Raises Forbidden."""
        require(self.rule, principal, name := getattr(asked, self.field) if self.field else None)
        return name or ""


def require(rule: Rule, principal: Principal, queue_name: str | None) -> None:
    """Raise Forbidden unless they may make a call on this queue; None = on none."""
    rule.require(principal, {} if queue_name is None else {rule.field: queue_name})


# --- queues ---------------------------------------------------------------------------------------


def _settings(asked: Any, kind_name: str, *, named: bool) -> DoqSettings:
    """The settings of a request; 0 is what DOQ takes for the default.

    Args:
        named: all but the strategy are asked for, 0 too.
    """
    given = asked.settings
    number = int(given.strategy)
    if number >= len(STRATEGIES):
        raise BadRequest("settings.strategy", "a Strategy", number)
    values: Fields = {"max_unacked": given.max_unacked, "ack_timeout": given.ack_timeout}
    values = {name: value for name, value in values.items() if value or named}
    if kind_name == "delayed" and not given.max_unacked:
        values.pop("max_unacked", None)
    if number:
        values["strategy"] = STRATEGIES[number]
    try:
        return DoqSettings(**values)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0])
        raise BadRequest(f"settings.{name}", first["msg"], first["input"]) from None


async def create_queue(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """Make a queue. One of that name and type that is there already is fine."""
    if asked.type not in topics.KINDS:
        raise BadRequest("type", " or ".join(topics.KINDS), asked.type)
    settings = _settings(asked, asked.type, named=False)
    topic = topics.topic_of(asked.name, asked.type, settings)
    await asyncio.to_thread(catalogue.create, shared.service.broker, topic)
    return {"success": True}


async def update_queue(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """Replace the settings of a queue; a strategy that is not named stays."""
    topic = shared.doq.messages.topic(asked.name).topic
    settings = _settings(asked, topics.TYPES[topic.kind], named=True)
    changes = topics.changes_of(topic.kind, settings, topic.weights)
    await asyncio.to_thread(shared.service.broker.alter_topic, asked.name, changes)
    return {"success": True}


async def delete_queue(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """Delete a queue and its messages."""
    shared.doq.messages.topic(asked.name)
    await asyncio.to_thread(shared.service.broker.delete_topic, asked.name)
    return {"success": True}


def _described(values: Fields) -> Fields:
    """What GET shows of a queue, as the fields of GetQueueResponse."""
    names = ("name", "type", "ready", "unacked", "total")
    settings = dict(values["settings"])
    strategy = settings.pop("strategy", "")
    shown = {**settings, "strategy": STRATEGIES.index(strategy)}
    stats = {f"{name[:-4]}RPS": rate for name, rate in values.items() if name.endswith("_rps")}
    return {name: values[name] for name in names} | {"settings": shown, "stats": stats}


async def get_queue(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """A queue, and how full it is."""
    topic = shared.doq.messages.topic(asked.name).topic
    stats = await asyncio.to_thread(shared.service.broker.call, "stats", {"topic": asked.name})
    return _described(topics.describe(topic, stats, shared.doq.rates.of(asked.name)))


async def get_queues(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """All queues of a type that the caller may look at."""
    found = [topic for topic in shared.service.broker.topics() if topics.is_queue(topic)]
    rates = shared.doq.rates
    rates.keep(topic.name for topic in found)
    shown = [
        topic
        for topic in found
        if asked.type in ("", topics.TYPES[topic.kind])
        and rules.may_look(caller.principal, topic.name)
    ]
    stats = await asyncio.to_thread(catalogue.stats_of, shared.service, caller.bearer, shown)
    described = [
        _described(topics.describe(topic, stats[topic.name], rates.of(topic.name)))
        for topic in shown
        if topic.name in stats
    ]
    return {"queues": described}


# --- messages -------------------------------------------------------------------------------------


async def generate_ids(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """Ids for messages that are to be sent: a message sent twice with its id counts once."""
    if not 1 <= asked.number <= IDS_MAX:
        raise BadRequest("number", f"from 1 to {IDS_MAX}", asked.number)
    return {"success": True, "ids": [int(text) for text in shared.doq.ids.take(asked.number)]}


def shown(queue_name: str, row: Row) -> Fields:
    """A message. Its id is 0 if its key, which another API gave it, is no number."""
    return {
        "success": True,
        "queueName": queue_name,
        "id": number_of(row.id) or 0,
        "group": row.group,
        "priority": row.priority,
        "content": row.content,
        "metadata": row.metadata,
    }


def _priority(asked: Any) -> int:
    priority: int = asked.priority
    if priority < 0:
        raise BadRequest("priority", "0 or more", priority)
    return priority


async def enqueue(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """Put a message into a queue; answered when it is durable."""
    account, content = caller.account, asked.content
    byte_count = len(content)
    account.take_sent(1, byte_count, wait=False)
    account.hold_bytes(byte_count, wait=False)
    try:
        message = DoqNewMessage.model_construct(
            content=content,
            priority=_priority(asked),
            id=str(asked.id) if asked.id else "",
            group=asked.group or DEFAULT_GROUP,
            metadata=dict(asked.metadata) or None,
        )
        sender = caller.sender(asked.queueName)
        row = await shared.doq.messages.enqueue(asked.queueName, message, sender)
    finally:
        account.give_bytes(byte_count)
    shared.doq.rates.note(asked.queueName, "enqueue")
    return shown(asked.queueName, row)


async def dequeue(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """Take the first message that is due; with `ack` it is done at once."""
    row = await shared.doq.messages.dequeue(asked.queueName, ack=asked.ack)
    note_taken(shared, asked.queueName, ack=asked.ack)
    return shown(asked.queueName, row)


def note_taken(shared: DoorState, queue_name: str, *, ack: bool) -> None:
    """Count a message that was taken."""
    shared.doq.rates.note(queue_name, "dequeue")
    if ack:
        shared.doq.rates.note(queue_name, "ack")


async def get(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """A message as it is, without taking it."""
    return shown(asked.queueName, await shared.doq.messages.get(asked.queueName, str(asked.id)))


async def delete(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """Delete a message, whether it waits or is with a consumer."""
    sender = caller.sender(asked.queueName)
    await shared.doq.messages.delete(asked.queueName, str(asked.id), sender)
    return {"success": True}


async def ack(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """A message is done."""
    await shared.doq.messages.ack(asked.queueName, str(asked.id))
    shared.doq.rates.note(asked.queueName, "ack")
    return {"success": True}


async def nack(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """A message goes back, perhaps with another priority or other metadata; what is 0 or empty
    stays."""
    metadata = dict(asked.metadata) or None
    messages = shared.doq.messages
    await messages.nack(asked.queueName, str(asked.id), _priority(asked), metadata)
    shared.doq.rates.note(asked.queueName, "nack")
    return {"success": True}


async def touch(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """The acknowledgement timeout of a message begins anew."""
    await shared.doq.messages.touch(asked.queueName, str(asked.id))
    return {"success": True}


async def update_priority(shared: DoorState, caller: Caller, asked: Any) -> Fields:
    """A message that waits gets another priority."""
    priority, sender = _priority(asked), caller.sender(asked.queueName)
    messages = shared.doq.messages
    await messages.set_priority(asked.queueName, str(asked.id), priority, sender)
    return {"success": True}


CALLS = {
    "CreateQueue": Call(create_queue, "doq_create_queue", "name"),
    "UpdateQueue": Call(update_queue, "doq_update_queue", "name"),
    "DeleteQueue": Call(delete_queue, "doq_delete_queue", "name"),
    "GetQueue": Call(get_queue, "doq_get_queue", "name"),
    "GetQueues": Call(get_queues, "doq_list_queues", ""),
    "GenerateIDs": Call(generate_ids, "doq_generate_ids", ""),
    "Enqueue": Call(enqueue, "doq_enqueue"),
    "Dequeue": Call(dequeue, "doq_dequeue"),
    "Get": Call(get, "doq_get_message"),
    "Delete": Call(delete, "doq_delete_message"),
    "Ack": Call(ack, "doq_ack"),
    "Nack": Call(nack, "doq_nack"),
    "Touch": Call(touch, "doq_touch"),
    "UpdatePriority": Call(update_priority, "doq_set_priority"),
}
"""By the call's name in doq.proto."""
