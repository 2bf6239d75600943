"""What a DOQ message is as a row: priority, group and metadata in the fields of a message.

Room: http. Pure: fields in, fields out.
Holds: a message keeps its id, its priority and its metadata however often it is delivered.
See: broker/doq/messages.py, which changes them.

    DOQ       delayed queue                    fair queue
    content   payload                          payload
    id        its id, or its key where the producer named it
    priority  due, in seconds; header          header PRIORITY,
              PRIORITY, or group when changed  and priority
    group     none                             group
    metadata  headers                          headers

While a message is leased its due time is the end of the lease, so the header says what it was. A
header never changes; where a priority is changed the group says so, which delayed queues have no
use for. In a fair queue the message's own priority decides, up to ORDERED_MAX; above, the header
says which it is. A fair topic made elsewhere may order by arrival: there the header is all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.doq.messages import (
    ORDERED_MAX,
    PRIORITY,
    Name,
    due_ms_of,
    orders_by_priority,
    priority_of,
)
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest
from dejaqueue.http.doq.shapes import DEFAULT_GROUP, UINT64_MAX, DoqNewMessage
from dejaqueue.model import Topic, TopicKind
from dejaqueue.schema.messages import HEADERS

AGAIN = "'"
"""Behind the id in the key of a message that was sent anew with other metadata."""


def name_of(text: str) -> Name:
    """What a DOQ id may mean. Raises BadRequest."""
    number = number_of(text.lstrip("0") or text[:1], digits_max=20)
    if number is None or number > UINT64_MAX:
        raise BadRequest("id", f"a whole number from 0 to {UINT64_MAX}", text)
    return Name(number, (f"{number}", f"{number}{AGAIN}"))


def id_of(message_id: int, key: str | None) -> str:
    """The DOQ id of a message."""
    return str(message_id) if not key else key.removesuffix(AGAIN)


def headers_of(priority: int, metadata: dict[str, str] | None) -> dict[str, str]:
    """The headers of a message. Raises BadRequest."""
    if metadata and PRIORITY in metadata:
        raise BadRequest("metadata", f"no entry {PRIORITY}", metadata[PRIORITY])
    return {**(metadata or {}), PRIORITY: str(priority)}


@dataclass(frozen=True, slots=True)
class Sending:
    """A checked message to send.

    Attributes:
        due_ms: of a delayed queue; -1 = at once.
        key: "" = the broker names it.
    """

    content: bytes
    due_ms: int
    group: str
    headers: dict[str, str]
    key: str
    priority: int = limits.PRIORITY_DEFAULT


def sending_of(topic: Topic, message: DoqNewMessage, key: str) -> Sending:
    """What to send for a message. Raises BadRequest."""
    is_delayed = topic.kind is TopicKind.TIMELINE
    ordered = min(message.priority, limits.PRIORITY_MAX)
    return Sending(
        message.content.encode(),
        due_ms_of(message.priority) if is_delayed else -1,
        "" if is_delayed else message.group,
        headers_of(message.priority, message.metadata),
        key,
        ordered if orders_by_priority(topic) else limits.PRIORITY_DEFAULT,
    )


def send_batch(sendings: Sequence[Sending], now_ms: int) -> pa.RecordBatch:
    """The batch that sends these messages of one queue."""
    dues_ms = [now_ms if one.due_ms < 0 else one.due_ms for one in sendings]
    columns: dict[str, Any] = {
        "payload": pa.array([one.content for one in sendings], pa.binary()),
        "due": pa.array(dues_ms, pa.int64()),
        "headers": pa.array([list(one.headers.items()) for one in sendings], HEADERS),
    }
    if any(one.group for one in sendings):
        columns["group"] = pa.array([one.group for one in sendings], pa.utf8())
    if any(one.priority != limits.PRIORITY_DEFAULT for one in sendings):
        columns["priority"] = pa.array([one.priority for one in sendings], pa.uint16())
    if any(one.key for one in sendings):
        columns["key"] = pa.array([one.key for one in sendings], pa.utf8())
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def own_key(text: str) -> str:
    """The key for an id that a producer names; "" = it names none, as 0 does. Raises BadRequest."""
    name = name_of(text or "0")
    return name.keys[0] if name.id else ""


@dataclass(frozen=True, slots=True)
class Row:
    """A message as it is now."""

    id: str
    group: str
    priority: int
    content: str
    metadata: dict[str, str] | None
    message_id: int
    key: str
    attempts: int


def row_of(topic: Topic, row: dict[str, Any]) -> Row:
    """The message of a row of DELIVERY or PEEK."""
    headers = dict(row["headers"] or ())
    group = row["group"] or ""
    stored = headers.pop(PRIORITY, "")
    delayed = topic.kind is TopicKind.TIMELINE
    if orders_by_priority(topic) and row["priority"] <= ORDERED_MAX:
        priority = row["priority"]
    else:
        priority = priority_of(stored, group if delayed else "", row["due"] // 1_000)
    key = row["key"] or ""
    return Row(
        id_of(row["id"], key),
        DEFAULT_GROUP if delayed else group,
        priority,
        row["payload"].decode(errors="replace"),
        headers or None,
        row["id"],
        key,
        row["attempts"],
    )


def sent_row(topic: Topic, message: DoqNewMessage, message_id: int, key: str) -> Row:
    """The row of a message that was just sent."""
    group = DEFAULT_GROUP if topic.kind is TopicKind.TIMELINE else message.group
    metadata = message.metadata or None
    return Row(key, group, message.priority, message.content, metadata, message_id, key, 0)
