"""What a DOQ message is as a row: priority, group and metadata in the fields of a message.

Room: http. The functions that take a `Partition` run on its worker.
Holds: a message keeps its id, its priority and its metadata however often it is delivered.

    DOQ       delayed queue                    fair queue
    content   payload                          payload
    id        its id, or its key where the producer named it
    priority  due, in seconds; header          header PRIORITY
              PRIORITY, or group when changed
    group     none                             group
    metadata  headers                          headers

While a message is leased its due time is the end of the lease, so the header says what it was. A
header never changes; where a priority is changed the group says so, which delayed queues have no
use for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.at_once import Name, find, is_leased, read_headers
from dejaqueue.broker.partition import Partition
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Ack, Cancel, Extend, Move, Nack
from dejaqueue.errors import BadRequest
from dejaqueue.http.doq.shapes import DEFAULT_GROUP, UINT64_MAX, DoqNewMessage
from dejaqueue.model import RowStatus, TopicKind
from dejaqueue.schema.messages import HEADERS

PRIORITY = "doq-priority"
"""The header with a message's priority; a user's own of that name is refused."""
CHANGED = f"{PRIORITY}:"
"""What the group of a message begins with whose priority was changed."""
PRIORITY_MAX = limits.INSTANT_MS_MAX // 1_000
"""Of a delayed queue: the last second that a message can wait for."""
AGAIN = "'"
"""Behind the id in the key of a message that was sent anew with other metadata."""


def name_of(text: str) -> Name:
    """What a DOQ id may mean. Raises BadRequest."""
    if not text.isascii() or not text.isdecimal() or int(text) > UINT64_MAX:
        raise BadRequest("id", f"a whole number from 0 to {UINT64_MAX}", text)
    number = str(int(text))
    return Name(int(number), (number, number + AGAIN))


def id_of(message_id: int, key: str | None) -> str:
    """The DOQ id of a message."""
    return str(message_id) if not key else key.removesuffix(AGAIN)


def due_ms_of(priority: int) -> int:
    """When a message of a delayed queue is due. Raises BadRequest."""
    if priority > PRIORITY_MAX:
        raise BadRequest("priority", f"from 0 to {PRIORITY_MAX} in a delayed queue", priority)
    # A due time before 1973 is taken for a mistake (INSTANT_MS_MIN). Small priorities are overdue
    # all the same, and keep their order there.
    return max(priority * 1_000, limits.INSTANT_MS_MIN + priority) if priority else 0


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


def sending_of(kind: TopicKind, message: DoqNewMessage, key: str) -> Sending:
    """What to send for a message. Raises BadRequest."""
    is_delayed = kind is TopicKind.TIMELINE
    return Sending(
        message.content.encode(),
        due_ms_of(message.priority) if is_delayed else -1,
        "" if is_delayed else message.group,
        headers_of(message.priority, message.metadata),
        key,
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


def row_of(kind: TopicKind, row: dict[str, Any]) -> Row:
    """The message of a row of DELIVERY or PEEK."""
    headers = dict(row["headers"] or ())
    group = row["group"] or ""
    stored = headers.pop(PRIORITY, "")
    delayed = kind is TopicKind.TIMELINE
    priority = _priority(stored, group if delayed else "", row["due"] // 1_000)
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


def sent_row(kind: TopicKind, message: DoqNewMessage, message_id: int, key: str) -> Row:
    """The row of a message that was just sent."""
    group = DEFAULT_GROUP if kind is TopicKind.TIMELINE else message.group
    metadata = message.metadata or None
    return Row(key, group, message.priority, message.content, metadata, message_id, key, 0)


def _priority(stored: str, group: str, otherwise: int) -> int:
    for text in (group.removeprefix(CHANGED) if group.startswith(CHANGED) else "", stored):
        if text.isascii() and text.isdecimal():
            return int(text)
    return otherwise


# --- on the worker --------------------------------------------------------------------------


def _one(sequence: int) -> Any:
    return np.array([sequence], dtype=np.int64)


def sender_of(place: Partition, sequence: int) -> Sender:
    """Who sent a live message."""
    senders = place.engine.senders(_one(sequence))
    return NOBODY if senders is None else Sender(senders.names[int(senders.indices[0])])


def ack(place: Partition, name: Name) -> RowStatus:
    """A message that is leased is done."""
    sequence = find(place, name)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if not is_leased(place, sequence):
        return RowStatus.LEASE_LOST
    rows = _one(sequence)
    place.apply(Ack(place.now_ms(), -1, rows, place.engine.attempts(rows)))
    return RowStatus.OK


def touch(place: Partition, name: Name) -> RowStatus:
    """The lease of a message begins anew."""
    sequence = find(place, name)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if not is_leased(place, sequence):
        return RowStatus.LEASE_LOST
    rows, now_ms = _one(sequence), place.now_ms()
    end_ms = now_ms + place.topic().lease_ms
    place.apply(Extend(now_ms, end_ms, -1, rows, place.engine.attempts(rows)))
    return RowStatus.OK


def _find_owned(place: Partition, name: Name, owner: str | None) -> int | None:
    """As `find`, of the messages that this sender sent; None = anybody's."""
    sequence = find(place, name)
    if sequence is None or owner is None or place.engine.sent_by(_one(sequence), owner)[0]:
        return sequence
    return None


def delete(place: Partition, name: Name, owner: str | None) -> RowStatus:
    """A message is gone, whether it waits or is leased."""
    sequence = _find_owned(place, name, owner)
    if sequence is None:
        return RowStatus.NOT_FOUND
    rows, now_ms = _one(sequence), place.now_ms()
    if is_leased(place, sequence):
        place.apply(Ack(now_ms, -1, rows, place.engine.attempts(rows)))
    else:
        place.apply(Cancel(now_ms, rows))
    return RowStatus.OK


def put_back(place: Partition, name: Name, priority: int) -> RowStatus:
    """A leased message goes back to its place in the queue.

    Args:
        priority: another one for it; 0 = it keeps its own.
    """
    sequence = find(place, name)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if not is_leased(place, sequence):
        return RowStatus.LEASE_LOST
    rows, now_ms = _one(sequence), place.now_ms()
    due_ms = now_ms
    is_delayed = place.topic().kind is TopicKind.TIMELINE
    if is_delayed:
        due_ms = _due_ms(place, sequence, priority)
    place.apply(Nack(now_ms, due_ms, -1, rows, place.engine.attempts(rows)))
    if is_delayed and priority:
        place.apply(Move(now_ms, rows, None, None, _changed(priority)))
    return RowStatus.OK


def _due_ms(place: Partition, sequence: int, priority: int) -> int:
    """When a message that goes back is due: as when it was sent, or by its new priority."""
    if priority:
        return due_ms_of(priority)
    groups = place.engine.moved_groups(_one(sequence))
    group = "" if groups is None else groups.names[groups.indices[0]]
    stored = read_headers(place, sequence).get(PRIORITY, "")
    return due_ms_of(_priority(stored, group, place.now_ms() // 1_000))


def _changed(priority: int) -> Words:
    return Words((f"{CHANGED}{priority}",), np.zeros(1, dtype=np.int32))


def set_priority(place: Partition, name: Name, priority: int, owner: str | None) -> RowStatus:
    """A message that waits in a delayed queue gets another priority."""
    sequence = _find_owned(place, name, owner)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if is_leased(place, sequence):
        return RowStatus.LEASED
    dues_ms = np.array([due_ms_of(priority)], dtype=np.int64)
    place.apply(Move(place.now_ms(), _one(sequence), dues_ms, None, _changed(priority)))
    return RowStatus.OK
