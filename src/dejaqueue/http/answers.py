"""Messages and statuses as JSON.

Room: http. Columns in, JSON values out.
Holds: ids are texts; a payload that is UTF-8 is a text, any other is base64 under another name.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import DuplicateKey
from dejaqueue.http.gather import Answered
from dejaqueue.model import RowStatus
from dejaqueue.schema.vouchers import is_voucher, parse_voucher

STATUS_NAMES = tuple(status.name for status in RowStatus)
_OPTIONAL = ("key", "group", "tags", "headers", "consumer", "unread")
Objects = list[dict[str, Any]]


def id_text(message_id: int) -> str | None:
    """An id as JSON has it; None where there is none."""
    return str(message_id) if message_id >= 0 else None


def sent(answered: Answered) -> Objects:
    """What became of messages that were sent."""
    if not any(answered.statuses):
        return [{"id": text, "status": "OK"} for text in map(str, answered.ids)]
    return [
        {"id": id_text(message_id), "status": STATUS_NAMES[status]}
        for message_id, status in zip(answered.ids, answered.statuses, strict=True)
    ]


def one_sent(answered: Answered, key: str) -> dict[str, Any]:
    """What became of a message. Raises DuplicateKey."""
    [message_id], [status] = answered.ids, answered.statuses
    if status == RowStatus.DUPLICATE:
        raise DuplicateKey(key, message_id)
    return {"id": str(message_id), "status": STATUS_NAMES[status]}


def participants(topic: str, answered: Answered) -> list[str]:
    """The partitions that have something in a transaction now, for its commit."""
    homes = {message_id >> limits.SEQUENCE_BITS for message_id in answered.ids if message_id >= 0}
    return [f"{topic}/{partition}" for partition in sorted(homes)]


def statuses(names: Sequence[tuple[str, Any]], found: Sequence[int]) -> Objects:
    """The status of each message that was named, beside its name."""
    return [
        {name: value, "status": STATUS_NAMES[status]}
        for (name, value), status in zip(names, found, strict=True)
    ]


def messages(batch: pa.RecordBatch, *, as_base64: bool = False, **more: Any) -> Objects:
    """The messages of a batch of schema DELIVERY or PEEK.

    Args:
        as_base64: every payload is base64.
        more: fields that all of them have.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    shown: dict[str, list[Any]] = {
        "id": list(map(str, columns["id"].to_pylist())),
        "attempt": columns["attempts"].to_pylist(),
        "due": columns["due"].to_pylist(),
        "priority": columns["priority"].to_pylist(),
    }
    if "state" in columns:
        shown["state"] = columns["state"].to_pylist()
    names, values = [*shown, *more], [*shown.values()]
    constants = tuple(more.values())
    objects = [
        dict(zip(names, (*row, *constants), strict=True)) for row in zip(*values, strict=True)
    ]
    if "payload" in columns:  # else the caller may not see them
        _add_payloads(objects, columns["payload"], as_base64=as_base64)
    for name in _OPTIONAL:
        column = columns.get(name)
        if column is not None and column.null_count < len(column):
            for found, value in zip(objects, column.to_pylist(), strict=True):
                if value:
                    found[name] = dict(value) if name == "headers" else value
    return objects


def _add_payloads(objects: Objects, column: pa.BinaryArray, *, as_base64: bool) -> None:
    if not as_base64:
        try:
            texts = column.cast(pa.utf8()).to_pylist()
        except pa.ArrowInvalid:
            pass
        else:
            for found, text in zip(objects, texts, strict=True):
                if text is not None:
                    found["payload"] = text
            return
    for found, payload in zip(objects, column.to_pylist(), strict=True):
        if payload is None:  # it cannot be read now
            continue
        if not as_base64:
            try:
                found["payload"] = payload.decode()
            except UnicodeDecodeError:
                pass
            else:
                continue
        if is_voucher(payload):
            found["payload_bytes"] = parse_voucher(payload).byte_count
        found["payload_base64"] = binascii.b2a_base64(payload, newline=False).decode()
