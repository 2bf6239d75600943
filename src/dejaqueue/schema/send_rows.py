"""A few messages to send that are not columns yet.

Room: schema. Plain Python; Arrow only where they become columns.
Holds: what passes `check_rows` would pass `check_send`, and is refused by the same words if not.
See: checks.py; row_fields.py; broker/partition/merging.py, which makes columns of those that came
together.

A batch of one costs more to be made, checked and joined as Arrow columns than all else that is done
to it. So these stay lists until they are joined with what waits beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.instants import check_instants
from dejaqueue.schema.plain import binary_column, utf8_column
from dejaqueue.schema.row_fields import Fields, PackedFields, check_fields

Value = TypeVar("Value", bytes, int)

_NOTHING = PackedFields()


@dataclass(slots=True)
class SendRows:
    """Checked messages.

    Attributes:
        payload_bytes: of all payloads together.
        fields: what they have beside payload and due time; None = nothing.
    """

    payloads: list[bytes]
    dues_ms: list[int]
    payload_bytes: int
    fields: PackedFields | None = None

    # They go anywhere: who routes by key or group makes columns of them first.
    keys = groups = partitions = None

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.dues_ms)

    def columns(self) -> SendColumns:
        """The same as columns."""
        return joined_columns([self])

    def take(self, indices: npt.NDArray[np.int64]) -> SendColumns:
        """The rows at these places."""
        return self.columns().take(indices)


def joined_columns(parts: list[SendRows]) -> SendColumns:
    """The rows of all of them, one after the other."""
    dues_ms = [due_ms for part in parts for due_ms in part.dues_ms]
    columns = SendColumns(
        rows=len(dues_ms),
        dues_ms=np.array(dues_ms, dtype=np.int64),
        payloads=binary_column([payload for part in parts for payload in part.payloads]),
        keys=None,
        groups=None,
        tags=None,
        headers=None,
        partitions=None,
        payload_bytes=sum(part.payload_bytes for part in parts),
    )
    if any(part.fields is not None for part in parts):
        fields = [_NOTHING if part.fields is None else part.fields for part in parts]
        columns.keys = _texts(parts, [one.keys for one in fields])
        columns.groups = _texts(parts, [one.groups for one in fields])
        columns.tags = _texts(parts, [one.tags for one in fields])
        columns.headers = _texts(parts, [one.headers for one in fields])
        priorities = _joined(
            parts, [one.priorities for one in fields], default=limits.PRIORITY_DEFAULT
        )
        if priorities is not None:
            columns.priorities = np.array(priorities, dtype=np.uint16)
        expires_ms = _joined(parts, [one.expires_ms for one in fields], default=0)
        if expires_ms is not None:
            columns.expires_ms = np.array(expires_ms, dtype=np.int64)
    return columns


def _joined(
    parts: list[SendRows], columns: Sequence[list[Value] | None], *, default: Value
) -> list[Value] | None:
    """The values of all parts, with the default where one has none; None = no part has any."""
    if all(column is None for column in columns):
        return None
    values: list[Value] = []
    for part, column in zip(parts, columns, strict=True):
        values += [default] * part.rows if column is None else column
    return values


def _texts(parts: list[SendRows], columns: Sequence[list[bytes] | None]) -> pa.StringArray | None:
    values = _joined(parts, columns, default=b"")
    return None if values is None else utf8_column(values)


def check_rows(
    payloads: list[bytes],
    dues_ms: list[int] | None,
    topic: Topic,
    now_ms: int,
    fields: Fields | None = None,
) -> SendRows:
    """The checked rows of a batch to send.

    Args:
        dues_ms: None = `now_ms`, all of them.
        now_ms: also the start of `max_delay_ms`.
        fields: what they have besides; None = nothing.

    Raises:
        BadRequest: names the field, the row, the limit and the value.
    """
    rows = len(payloads)
    if not 1 <= rows <= limits.BATCH_ROWS_MAX:
        raise BadRequest("rows of the batch", f"from 1 to {limits.BATCH_ROWS_MAX}", rows)
    sizes = list(map(len, payloads))
    byte_count, most = sum(sizes), max(sizes)
    allowed = min(topic.max_payload_bytes, limits.PAYLOAD_BYTES_MAX)
    if most > allowed:
        row = sizes.index(most)
        raise BadRequest(f"payload of row {row}", f"at most {allowed} bytes", most)
    if byte_count > limits.BATCH_BYTES_MAX:
        raise BadRequest("batch", f"at most {limits.BATCH_BYTES_MAX} bytes of texts", byte_count)
    if dues_ms is None:
        dues_ms = [now_ms] * rows
    else:
        _check_dues(dues_ms, topic, now_ms)
    packed = None if fields is None else check_fields(fields, byte_count)
    return SendRows(payloads, dues_ms, byte_count, packed)


def _check_dues(dues_ms: list[int], topic: Topic, now_ms: int) -> None:
    low, high = min(dues_ms), max(dues_ms)
    if low < limits.INSTANT_MS_MIN or high > limits.INSTANT_MS_MAX:
        check_instants("due", np.array(dues_ms, dtype=np.int64))
    if topic.max_delay_ms and high > (last := now_ms + topic.max_delay_ms):
        row = next(row for row, due_ms in enumerate(dues_ms) if due_ms > last)
        raise BadRequest(f"due of row {row}", f"from 0 to {last}", dues_ms[row])
