"""Messages that a request names: by (id, attempt) to settle, by id or key to move and cancel.

Room: http. JSON values in, columns out; limits are checked later, by schema/checks.py.
Holds: ids are texts in JSON, as a number there may lose digits; a whole number is taken, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest
from dejaqueue.http.columns import instants

_ID_LIMIT = "an id, as a text of digits"
_ID_MAX = (1 << 63) - 1


def check_id(value: object, field: str = "id") -> int:
    """The id that a text (or number) says. Raises BadRequest."""
    if type(value) is str and (number := number_of(value)) is not None:
        value = number
    if type(value) is not int or not 0 <= value <= _ID_MAX:
        raise BadRequest(field, _ID_LIMIT, value)
    return value


def settled_rows(values: object) -> list[tuple[int, int]]:
    """(id, attempt) of each of a request's messages. Raises BadRequest."""
    if type(values) is not list or not values:
        raise BadRequest("messages", "a list of at least one {id, attempt}", values)
    if len(values) > limits.BATCH_ROWS_MAX:
        raise BadRequest("messages", f"at most {limits.BATCH_ROWS_MAX}", len(values))
    return [_settled_row(value, row) for row, value in enumerate(values)]


def _settled_row(value: object, row: int) -> tuple[int, int]:
    if type(value) is not dict or len(value) != 2 or "id" not in value or "attempt" not in value:
        raise BadRequest(f"row {row}", "an object of id and attempt", value)
    attempt = value["attempt"]
    if type(attempt) is not int or not 0 <= attempt <= limits.ATTEMPTS_MAX:
        limit = f"a whole number from 0 to {limits.ATTEMPTS_MAX}"
        raise BadRequest(f"attempt of row {row}", limit, attempt)
    return check_id(value["id"], f"id of row {row}"), attempt


def settle_batch(rows: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    """The batch of rows to settle."""
    columns = np.array(rows, dtype=np.int64)
    ids, attempts = np.ascontiguousarray(columns[:, 0]), columns[:, 1].astype(np.uint16)
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(attempts)], ["id", "attempts"])


def named_batch(values: object, now_ms: int, *changes: str) -> pa.RecordBatch:
    """The batch of messages to move or cancel.

    Args:
        values: objects with `id` or `key` (all the same), what changes, and `if_due`.
        now_ms: where `delay_ms` begins.
        changes: what may change: due, delay_ms, by_ms, priority, group.

    Raises:
        BadRequest: names the field and the row.
    """
    if type(values) is not list or not values or len(values) > limits.BATCH_ROWS_MAX:
        limit = f"a list of 1 to {limits.BATCH_ROWS_MAX} objects"
        raise BadRequest("messages", limit, values if type(values) is not list else len(values))
    names: set[str] = set()
    for row, value in enumerate(values):
        if type(value) is not dict:
            raise BadRequest(f"row {row}", "a JSON object", value)
        names.update(value)
    known = {"id", "key", "if_due", *changes}
    for name in sorted(names - known):
        raise BadRequest(name, f"one of {', '.join(sorted(known))}", name)
    by = "id" if "id" in names else "key"
    if {"id", "key"} <= names:
        raise BadRequest("key", "all rows with id, or all rows with key", "both")
    columns: dict[str, pa.Array] = {}
    if by == "id":
        ids = [check_id(value.get("id"), f"id of row {row}") for row, value in enumerate(values)]
        columns["id"] = pa.array(ids, pa.int64())
    else:
        columns["key"] = pa.array(_texts(values, "key"), pa.utf8())
    times = sorted(names & {"due", "delay_ms", "by_ms"})
    if len(times) > 1:
        raise BadRequest(times[0], "all rows with one of due, delay_ms, by_ms", ", ".join(times))
    if "due" in names:
        columns["due"] = instants([value.get("due") for value in values], "due")
    elif times:
        lengths = _whole_numbers(values, times[0])
        is_shift = times[0] == "by_ms"
        columns["by_ms" if is_shift else "due"] = pa.array(
            lengths if is_shift else lengths + now_ms
        )
    if "priority" in names:
        columns["priority"] = _priorities(values)
    if "group" in names:
        columns["group"] = pa.array(_texts(values, "group"), pa.utf8())
    if changes and len(columns) == 1:
        raise BadRequest("messages", f"something that changes: {', '.join(changes)}", None)
    if "if_due" in names:
        columns["if_due"] = _conditions(values)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _conditions(values: list[dict[str, Any]]) -> pa.Int64Array:
    """When each has to be due, null = whenever."""
    given = [value.get("if_due") for value in values]
    rows = [row for row, value in enumerate(given) if value is not None]
    column: list[int | None] = [None] * len(given)
    if rows:
        dues_ms = instants([given[row] for row in rows], "if_due").to_pylist()
        for row, due_ms in zip(rows, dues_ms, strict=True):
            column[row] = due_ms
    return pa.array(column, pa.int64())


def _whole_numbers(values: list[dict[str, Any]], name: str) -> npt.NDArray[np.int64]:
    """Milliseconds of each row; only a shift may be negative."""
    low = -limits.INSTANT_MS_MAX if name == "by_ms" else 0
    for row, value in enumerate(values):
        number = value.get(name)
        if type(number) is not int or not low <= number <= limits.INSTANT_MS_MAX:
            limit = f"a whole number from {low} to {limits.INSTANT_MS_MAX}"
            raise BadRequest(f"{name} of row {row}", limit, number)
    return np.array([value[name] for value in values], dtype=np.int64)


def _texts(values: list[dict[str, Any]], name: str) -> list[str]:
    for row, value in enumerate(values):
        if type(value.get(name)) is not str:
            raise BadRequest(f"{name} of row {row}", "a text", value.get(name))
    return [value[name] for value in values]


def _priorities(values: list[dict[str, Any]]) -> pa.UInt16Array:
    for row, value in enumerate(values):
        priority = value.get("priority")
        if type(priority) is not int or not 0 <= priority <= limits.PRIORITY_MAX:
            limit = f"a whole number from 0 to {limits.PRIORITY_MAX}"
            raise BadRequest(f"priority of row {row}", limit, priority)
    return pa.array([value["priority"] for value in values], pa.uint16())
