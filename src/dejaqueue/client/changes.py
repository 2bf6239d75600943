"""What a move changes, as columns: due times, priorities, groups.

Room: client. Values to Arrow columns; waits for nothing.
Holds: each column has a value for each message, of the wire's type (schema.messages.MOVE); anything
else is a BadRequest that names the field.
See: core.py, which sends them.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.sending.inputs import due_ms_of, dues_of, int64s_of, texts_of
from dejaqueue.errors import BadRequest


def change_columns(rows: int, due: object, priority: object, group: object) -> dict[str, pa.Array]:
    """The columns of what changes, by name; None = stays. Raises BadRequest.

    Args:
        due, priority, group: one value for all messages, or one for each of them.
    """
    columns: dict[str, pa.Array] = {}
    if due is not None:
        columns["due"] = _dues(rows, due)
    if priority is not None:
        columns["priority"] = _priorities(rows, priority)
    if group is not None:
        columns["group"] = _groups(rows, group)
    if not columns:
        raise BadRequest("due", "something that changes: due, priority or group", None)
    return columns


def _dues(rows: int, due: object) -> pa.Array:
    if isinstance(due, int | datetime):
        return pa.array(np.full(rows, due_ms_of(due), dtype=np.int64))
    return pa.array(dues_of(due, rows))


def _priorities(rows: int, priority: object) -> pa.Array:
    is_one = isinstance(priority, int) and not isinstance(priority, bool)
    column = int64s_of([priority] * rows if is_one else priority, "priority")
    if len(column) != rows:
        raise BadRequest("priority", f"one, or one for each of the {rows} messages", len(column))
    if rows and not 0 <= int(column.min()) <= int(column.max()) <= limits.PRIORITY_MAX:
        bad = int(column.min()) if column.min() < 0 else int(column.max())
        raise BadRequest("priority", f"from 0 to {limits.PRIORITY_MAX}", bad)
    return pa.array(column.astype(np.uint16))


def _groups(rows: int, group: object) -> pa.Array:
    column = texts_of([group] * rows if isinstance(group, str) else group, "group")
    if len(column) != rows:
        raise BadRequest("group", f"one, or one for each of the {rows} messages", len(column))
    return column
