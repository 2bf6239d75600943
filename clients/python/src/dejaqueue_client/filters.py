"""Which messages a call by filter is about, and how a request says it.

Room: client. Values only.
Holds: what is asked is checked here, with the user's own words.
See: docs/guides/browsing.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypedDict
from urllib.parse import quote

from dejaqueue_client.errors import BadRequest
from dejaqueue_client.inputs import due_ms_of, filter_tags
from dejaqueue_client.message_view import MessageView
from dejaqueue_client.topic_names import check_served_name

STATES = ("scheduled", "ready", "leased", "dead", "staged", "staged_ack")
NAMES_BYTES_MAX = 12 << 10
"""Bytes of ids or keys in one address: brokers take 32 KiB with all headers."""


class Where(TypedDict, total=False):
    """Which messages: all that is given holds of them; nothing given = all.

    Keys:
        due_from: due at this time or later: a datetime with a time zone, or UTC milliseconds.
        due_to: due before this time.
        state: `scheduled` (waits for its time, or for a consumer), `ready` (of those: its time has
            come), `leased`, `dead` (on its way to the dead-letter topic), `staged`, `staged_ack`
            (in a transaction that is not decided yet). Only the first two can be changed.
        group: of exactly this group; "" = of none.
        tags_any, tags_all, tags_none: with any, each, none of these tags.
        priority_from, priority_to: of a priority between the two, both included.
    """

    due_from: datetime | int | None
    due_to: datetime | int | None
    state: str | None
    group: str | None
    tags_any: Sequence[str]
    tags_all: Sequence[str]
    tags_none: Sequence[str]
    priority_from: int | None
    priority_to: int | None


def selected(where: dict[str, Any]) -> dict[str, Any]:
    """The fields of a filter, as a request has them. Raises BadRequest."""
    fields: dict[str, Any] = {}
    known = Where.__annotations__
    for name, value in where.items():
        if name not in known:
            raise BadRequest(name, f"one of {', '.join(known)}", value)
        if value is None:
            continue
        if name in ("due_from", "due_to"):
            fields[name] = due_ms_of(value, name, is_bound=True)
        elif name.startswith("tags_"):
            if tags := filter_tags(value, name):
                fields[name] = tags
        elif name == "state" and value not in STATES:
            raise BadRequest("state", f"one of {', '.join(STATES)}", value)
        elif name == "group" and not isinstance(value, str):
            raise BadRequest("group", "a text", value)
        else:
            fields[name] = value
    return fields


def topic_path(name: object) -> str:
    """The path of a topic, or of a subscription of one. Raises BadRequest."""
    return f"/v1/topics/{quote(check_served_name(name), safe='@=')}"


def named_parts(name: str, values: Sequence[Any]) -> Iterator[list[Any]]:
    """Ids or keys, as many as fit into one address."""
    part: list[Any] = []
    byte_count = 0
    for value in values:
        size = len(name) + 2 + len(quote(str(value), safe=""))
        if part and byte_count + size > NAMES_BYTES_MAX:
            yield part
            part, byte_count = [], 0
        part.append(value)
        byte_count += size
    if part:
        yield part


def view_in(row: dict[str, Any], payload: bytes | None) -> MessageView:
    """The message of a row of an answer."""
    return MessageView(
        id=int(row["id"]),
        state=row["state"],
        due_ms=row["due"],
        attempts=row["attempt"],
        key=row.get("key"),
        group=row.get("group", ""),
        priority=row["priority"],
        tags=tuple(row.get("tags", ())),
        headers=tuple(row.get("headers", {}).items()),
        payload=payload,
        consumer=row.get("consumer"),
    )
