"""What a move changes and on what condition, as columns.

Room: client. Values to Arrow columns; waits for nothing.
Holds: each column has a value for each message, of the wire's type (schema.messages.MOVE); anything
else is a BadRequest that names the field.
See: core.py, which sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.sending.inputs import delay_ms_of, due_ms_of, dues_of, int64s_of, texts_of
from dejaqueue.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Change:
    """What a move changes: one value for all messages, or one for each of them; None = stays.

    Attributes:
        due: when they are due.
        delay: instead: so long from now.
        by: instead: so much later than each is due; negative = earlier.
        if_due: only messages that are due then.
    """

    due: object = None
    delay: object = None
    by: object = None
    priority: object = None
    group: object = None
    if_due: object = None

    @property
    def repeats(self) -> bool:
        """True if a move that is carried out twice does what it does once."""
        return self.by is None or self.if_due is not None

    def columns(self, rows: int, now_ms: Callable[[], int]) -> dict[str, pa.Array]:
        """The columns of what changes, by name. Raises BadRequest.

        Args:
            now_ms: the broker's time; called for a delay.
        """
        times = {"due": self.due, "delay": self.delay, "by": self.by}
        given = [name for name, value in times.items() if value is not None]
        if len(given) > 1:
            raise BadRequest(given[1], "one of due, delay, by", ", ".join(given))
        columns: dict[str, pa.Array] = {}
        if self.due is not None:
            columns["due"] = _dues(rows, self.due)
        elif self.delay is not None:
            delays_ms = _lengths(rows, self.delay, "delay", delay_ms_of)
            columns["due"] = pa.array(delays_ms + now_ms())
        elif self.by is not None:
            columns["by_ms"] = pa.array(_lengths(rows, self.by, "by", shift_ms_of))
        if self.priority is not None:
            columns["priority"] = _priorities(rows, self.priority)
        if self.group is not None:
            columns["group"] = _groups(rows, self.group)
        if not columns:
            limit = "something that changes: due, delay, by, priority or group"
            raise BadRequest("due", limit, None)
        return columns | condition_columns(rows, self.if_due)


def condition_columns(rows: int, if_due: object) -> dict[str, pa.Array]:
    """The column of the condition, if there is one. Raises BadRequest."""
    return {} if if_due is None else {"if_due": _dues(rows, if_due, "if_due")}


def shift_ms_of(by: object, field: str = "by") -> int:
    """Milliseconds of a shift, a timedelta or seconds; may be negative. Raises BadRequest."""
    if isinstance(by, timedelta):
        by = by.total_seconds()
    if isinstance(by, int | float) and by < 0:
        return -delay_ms_of(-by, field)
    return delay_ms_of(by, field)


def _lengths(
    rows: int, value: object, field: str, length_ms: Callable[[object, str], int]
) -> npt.NDArray[np.int64]:
    """Milliseconds of one length of time for all, or of one for each."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        each: list[Any] = value.tolist() if isinstance(value, np.ndarray) else list(value)
        if len(each) != rows:
            raise BadRequest(field, f"one, or one for each of the {rows} messages", len(each))
        return np.array([length_ms(one, field) for one in each], dtype=np.int64)
    return np.full(rows, length_ms(value, field), dtype=np.int64)


def _dues(rows: int, due: object, field: str = "due") -> pa.Array:
    if isinstance(due, int | datetime):
        return pa.array(np.full(rows, due_ms_of(due, field), dtype=np.int64))
    return pa.array(dues_of(due, rows, field))


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
