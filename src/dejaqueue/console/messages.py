"""Messages: search by what they are, page by page; one message with its reason; sending one.

Room: console.
Holds: a page is one peek; payloads are shown up to PAYLOAD_CHARS_MAX, and not at all to whoever the
API does not show them to; a copy of a message is made from what the API says of it, not from what
a browser made of that.
See: message_fields.py; reasons.py; docs/guides/browsing.md.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from dejaqueue import limits
from dejaqueue.console import history, message_fields
from dejaqueue.console.api import ApiError, topic_path
from dejaqueue.console.changes import where_of
from dejaqueue.console.pages import redirect
from dejaqueue.console.reasons import reason
from dejaqueue.console.visit import Visit

ROWS = 50
PAYLOAD_CHARS_MAX = 64 << 10
STATES = ("scheduled", "ready", "leased", "dead", "staged", "staged_ack")
LOOKS_MAX = 3
CHANGES_MAX = 1_000
"""A page of a message goes on asking for what happened so often, and until there is so much."""
_SHOWN_CHARS = 80
_HEX_LINE = 16


async def show_messages(visit: Visit) -> Response:
    """A page of messages that fit."""
    topic, fields = visit.name("topic"), visit.fields
    where = where_of(fields)
    query: dict[str, Any] = {**where, "limit": ROWS, "after": fields.get("after")}
    for name in ("id", "key"):
        if fields.get(name):
            query[name] = [fields[name]]
    page = await visit.api.get(topic_path(topic, "messages"), **query)
    settings = await visit.api.get(topic_path(topic))
    more = {name: value for name, value in fields.items() if name != "after"}
    following = urlencode(more | {"after": page["next"]}) if page["next"] else ""
    values = {
        "topic": topic,
        "link": quote(topic, safe=""),
        "fields": fields,
        "states": STATES,
        "rows": [_row(message) for message in page["messages"]],
        "following": following,
        "settings": settings,
        "may_produce": visit.session.may("produce", topic),
    }
    return visit.page("messages", values)


async def show_message(visit: Visit) -> Response:
    """A message, why it is where it is, and what happened to it; of one that is done, the last."""
    topic, message_id = visit.name("topic"), visit.name("id")
    life = await _life(visit, topic, message_id)
    try:
        message = await visit.api.get(topic_path(topic, "messages", message_id))
    except ApiError as error:
        if error.status != 404 or life is None or not life["changes"]:
            raise
        message = None
    values = {
        "topic": topic,
        "link": quote(topic, safe=""),
        "message_id": message_id,
        "message": message,
        "life": life,
        "lines": [] if life is None else history.lines(life),
        "may_manage": visit.session.may("manage", topic),
    }
    if message is not None:
        values |= await _live_values(visit, topic, message)
    return visit.page("message", values)


async def _life(visit: Visit, topic: str, message_id: str) -> dict[str, Any] | None:
    """What happened to a message, as far as one page has room; None = it is not for this viewer.

    `failure` is why it could not be told, or not all of it; `whole_topic` is where that of a
    subscription's message is told. Raises ApiError: 404.
    """
    if not visit.session.may_look(topic):
        return None
    life: dict[str, Any] = {"history": True, "changes": [], "gaps": [], "silent": [], "next": None}
    said = {"whole_topic": "", "failure": ""}
    if "@" in topic:  # history is of the topic, and the API refuses the name of a subscription
        return life | said | {"whole_topic": topic.partition("@")[0]}
    path, after = topic_path(topic, "messages", message_id, "history"), visit.fields.get("after")
    try:
        for _ in range(LOOKS_MAX + 1):
            more = await visit.api.get(path, after=after)
            more["changes"] = life["changes"] + more["changes"]
            more["gaps"] = life["gaps"] + [gap for gap in more["gaps"] if gap not in life["gaps"]]
            life, after = more, more["next"]
            if after is None or len(life["changes"]) >= CHANGES_MAX:
                break
    except ApiError as error:
        if error.status == 404:
            raise
        return life | said | {"failure": error.detail}
    return life | said


async def _live_values(visit: Visit, topic: str, message: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a message that is live."""
    settings = await visit.api.get(topic_path(topic))
    stats: dict[str, Any] = {}
    if visit.session.may_look(topic):
        stats = await visit.api.get(topic_path(topic, "stats"))
        most = min(int(settings["group_in_flight_max"]), limits.PEEK_ROWS_MAX)
        if settings.get("group_runs"):
            most = most or limits.PEEK_ROWS_MAX
        if most and message.get("group"):
            query = {"state": "leased", "group": message["group"], "limit": most}
            page = await visit.api.get(topic_path(topic, "messages"), **query)
            stats["group_leased"] = len(page["messages"])
    return {
        "reason": reason(message, settings, stats, visit.now_ms),
        "payload": payload_forms(message),
        "unread": message.get("unread", ""),
        "headers": message.get("headers", {}),
        "may_produce": visit.session.may("produce", topic),
        "done": visit.fields.get("done", "") == "sent",
        "is_ready": message["state"] == "scheduled" and message["due"] <= visit.now_ms,
        "trace": history.trace_link(visit.trace_url, message.get("headers", {})),
    }


async def show_form(visit: Visit) -> Response:
    """The form to send a message; with `like`, filled from one that is there."""
    topic, like = visit.name("topic"), visit.fields.get("like", "")
    before: dict[str, Any] = {}
    if like:
        before = await visit.api.get(topic_path(topic, "messages", like))
    settings = await visit.api.get(topic_path(topic))
    values = {
        "topic": topic,
        "link": quote(topic, safe=""),
        "like": like,
        # Of a key there is one live message: a copy has none, unless one is typed.
        "texts": message_fields.shown(before) | {"key": ""},
        "payload_size": message_fields.payload_bytes(before) if like else 0,
        "settings": settings,
    }
    return visit.page("send", values)


async def send_message(visit: Visit) -> Response:
    """Send what the form has, and show it; with `like`, what was not touched as it is there."""
    topic, form = visit.name("topic"), visit.form
    before: dict[str, Any] = {}
    if form.get("like"):
        before = await visit.api.get(topic_path(topic, "messages", form["like"]))
    body = message_fields.content_of(form, before)
    if form.get("due"):
        body["due"] = form["due"]
    elif form.get("delay"):
        body["delay_ms"] = visit.whole("delay") * visit.whole("unit", 1_000)
    made = await visit.api.post(topic_path(topic, "messages"), body)
    if not visit.session.may_look(topic):
        return redirect(f"/console/topics/{quote(topic, safe='')}")
    return redirect(f"/console/topics/{quote(topic, safe='')}/messages/{made['id']}?done=sent")


async def change_message(visit: Visit) -> Response:
    """Move or cancel one message."""
    topic, message_id, verb = visit.name("topic"), visit.name("id"), visit.form.get("verb", "")
    row: dict[str, Any] = {"id": message_id}
    if verb == "move":
        row["due" if visit.form.get("due") else "by_ms"] = visit.form.get("due") or visit.whole(
            "by"
        ) * visit.whole("unit", 1_000)
    elif verb != "cancel":
        raise ApiError(400, "move or cancel")
    answer = await visit.api.post(topic_path(topic, verb), {"messages": [row]})
    [changed] = answer["messages"]
    if changed["status"] != "OK":
        raise ApiError(409, f"the message is {changed['status']}: nothing was changed")
    there = f"/console/topics/{quote(topic, safe='')}/messages"
    return redirect(there if verb == "cancel" else f"{there}/{message_id}")


def payload_forms(message: dict[str, Any]) -> dict[str, Any] | None:
    """A payload as text, as JSON and as hex, as far as it can be; None = it is not shown.

    >>> forms = payload_forms({"payload": '{"a":1}'})
    >>> forms["json"].split(), forms["hex"], forms["bytes"]
    (['{', '"a":', '1', '}'], '00000000  7b 22 61 22 3a 31 7d', 7)
    >>> payload_forms({"payload_base64": "/w=="})["text"] is None, payload_forms({})
    (True, None)
    """
    text: str | None = message.get("payload")
    if text is None and "payload_base64" not in message:
        return None
    content = text.encode() if text is not None else base64.b64decode(message["payload_base64"])
    pretty = None
    if text is not None and len(text) <= PAYLOAD_CHARS_MAX:
        try:
            pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except ValueError:
            pretty = None
    head = content[: PAYLOAD_CHARS_MAX // _HEX_LINE]
    lines = [
        f"{at:08x}  {head[at : at + _HEX_LINE].hex(' ')}" for at in range(0, len(head), _HEX_LINE)
    ]
    return {
        "text": None if text is None else text[:PAYLOAD_CHARS_MAX],
        "json": pretty,
        "hex": "\n".join(lines),
        "bytes": len(content),
        "is_cut": len(content) > PAYLOAD_CHARS_MAX,
    }


def _row(message: dict[str, Any]) -> dict[str, Any]:
    text = message.get("payload")
    if text is None:
        short = "(bytes)" if "payload_base64" in message else message.get("unread", "")
    else:
        short = text[:_SHOWN_CHARS] + ("…" if len(text) > _SHOWN_CHARS else "")
    return {
        **message,
        "short": short,
        "key": message.get("key", ""),
        "group": message.get("group", ""),
        "tags": message.get("tags", []),
    }
