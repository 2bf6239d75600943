"""Events: messages of a topic or a subscription as server-sent events, for browsers and curl.

Room: http. Parameters and the answer's beginning; the stream itself is event_stream.py.
Holds: what the id of the last event names is acked, durably, before anything else is handed out.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dejaqueue import limits
from dejaqueue.access.roles import Role
from dejaqueue.access.senders import NOBODY
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest
from dejaqueue.http.direct import DirectRoute
from dejaqueue.http.event_ids import UNACKED_MAX, parse_event_id
from dejaqueue.http.event_stream import EVENT_STREAM, EventOptions, EventStream
from dejaqueue.http.flow import flow_of
from dejaqueue.http.leasing.waiter import Taken
from dejaqueue.http.openapi import TopicName, answers, route
from dejaqueue.http.routes.leases import TAGS, ack_now, lease_options
from dejaqueue.http.service import account_of, principal_of, service_of
from dejaqueue.wire.descriptors import WriteStream

router = APIRouter(prefix="/v1/topics/{topic}", tags=["leases"], route_class=DirectRoute)
UNACKED = 64
"""Messages that are sent and not acked, where the client says nothing else."""
_LEASE = {"type": "integer", "minimum": limits.LEASE_MS_MIN, "maximum": limits.LEASE_MS_MAX}
_TAG_LIST = {"type": "array", "items": {"type": "string"}}


def _described(name: str, schema: dict[str, Any], text: str, *, place: str = "query") -> Any:
    return {"name": name, "in": place, "required": False, "description": text, "schema": schema}


_PARAMETERS = [
    _described("ack", {"type": "string", "enum": ["return", "auto"]},
               "return: messages are acked when the client comes back with the id of the last "
               "event; auto: before they are sent, at most once."),
    _described("max", {"type": "integer", "minimum": 1, "maximum": UNACKED_MAX},
               "Messages that are sent and not acked at most; then the stream ends."),
    _described("idle_ms", {"type": "integer", "minimum": 0, "maximum": 86_400_000},
               "The stream ends when nothing came for so long; 0 = it goes on."),
    _described("lease_ms", _LEASE, "How long what is sent is the client's; else as of the topic."),
    _described("consumer", {"type": "string"}, "A name of the client, as it is shown."),
    _described("encoding", {"type": "string", "enum": ["auto", "base64"]},
               "base64: all payloads are base64."),
    *(_described(name, _TAG_LIST, "Only messages with such tags.") for name in TAGS),
    _described("Last-Event-ID", {"type": "string", "maxLength": 4_096},
               "The id of the last event that the client has: what it names is acked.",
               place="header"),
]  # fmt: skip
_EXAMPLE = 'id: 140737488355333-1\ndata: {"id":"140737488355333","attempt":1,"payload":"hi"}\n\n'


@route(
    router,
    "events",
    openapi_extra={"parameters": _PARAMETERS},
    responses={
        **answers(None, None, "", 404),
        200: {
            "description": "Events, until the client goes away or the stream is over.",
            "content": {EVENT_STREAM: {"example": _EXAMPLE}},
        },
    },
)
async def event_stream(request: Request, topic: TopicName) -> Response:
    """Messages as server-sent events, as they become due.

    Each event has a message as a lease answers it, in its data. At least once: a client that comes
    back with `Last-Event-ID` acks what it got; what it does not ack comes again. With `ack=auto` at
    most once: events have no ids then.
    """
    caller = principal_of(request)
    caller.require(Role.CONSUME, topic)
    values = _values(request)
    options = EventOptions(
        lease_options(topic, values),
        _number(values, "max", UNACKED, 1, UNACKED_MAX),
        _number(values, "idle_ms", 0, 0, 86_400_000),
        as_base64=_word(values, "encoding", "auto", "base64"),
        auto_ack=_word(values, "ack", "return", "auto"),
    )
    flow = flow_of(request)
    last = request.headers.get("last-event-id", "")
    if last and not options.auto_ack:
        await flow.gather(WriteStream(topic, "ack"), NOBODY).put(parse_event_id(last))
    flow.leases.session(options.consumer)  # what is wrong with it is said now, and not in events

    async def ack(taken: list[Taken]) -> list[Taken]:
        return await ack_now(flow, topic, taken)

    gate, account = service_of(request).gate, account_of(request)
    return EventStream(flow, options, ack, caller=caller, account=account, gate=gate)


def _values(request: Request) -> dict[str, Any]:
    """The parameters of the address. Raises BadRequest."""
    values: dict[str, Any] = {}
    known = ("ack", "max", "idle_ms", "lease_ms", "consumer", "encoding")
    for name, value in request.query_params.multi_items():
        if name in TAGS:
            values.setdefault(name, []).append(value)
        elif name in known and name not in values:
            values[name] = value
        else:
            raise BadRequest(name, f"once, one of {', '.join((*known, *TAGS))}", value)
    if "lease_ms" in values:
        low, high = limits.LEASE_MS_MIN, limits.LEASE_MS_MAX
        values["lease_ms"] = _number(values, "lease_ms", 0, low, high)
    return values


def _number(values: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    number = number_of(text)
    if number is None or not low <= number <= high:
        raise BadRequest(name, f"a whole number from {low} to {high}", text)
    return number


def _word(values: dict[str, Any], name: str, usual: str, other: str) -> bool:
    """True if a parameter is the other of its two words. Raises BadRequest."""
    word = values.get(name, usual)
    if word not in (usual, other):
        raise BadRequest(name, f"{usual} or {other}", word)
    return bool(word == other)
