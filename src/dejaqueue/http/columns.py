"""Messages as JSON objects become columns.

Room: http. orjson has made Python values of the text by now; from here on it is one call for a
whole column. Limits are checked later, by schema/checks.py, as for any other batch.
Holds: a field that is not known, of the wrong type or given twice in two ways is a BadRequest that
names field and row (rule 15).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.http.bodies import JSON_DEPTH_MAX
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.messages import HEADERS, TAGS

FIELDS = frozenset(
    [
        "payload",
        "payload_base64",
        "json",
        "due",
        "delay_ms",
        "key",
        "group",
        "priority",
        "tags",
        "headers",
        "expires",
        "ttl_ms",
        "partition",
    ]
)
"""What a message may have."""
PIECE_BYTES = 1 << 20
"""NDJSON parsed in one go: some milliseconds, in which no other thread of Python runs."""
_PAYLOADS = ("payload", "payload_base64", "json")
_NONE = type(None)

Values = list[Any]


def lines_batch(content: bytes, now_ms: int) -> pa.RecordBatch:
    """The batch of NDJSON lines, as `send_batch`. Raises BadRequest.

    A long text is taken in pieces, so that other threads run between them.
    """
    batches: list[pa.RecordBatch] = []
    first = line_count = row_count = 0
    while first < len(content):
        end = _piece_end(content, first)
        piece = content[first:end] if first or end < len(content) else content
        try:
            values = parse_lines(piece)
            if values:
                batches.append(send_batch(values, now_ms))
        except BadRequest as wrong:
            raise _moved(wrong, line_count, row_count) from None
        line_count += piece.count(b"\n")
        row_count += len(values)
        first = end
    if not batches:
        raise BadRequest("messages", "at least one message", 0)
    return batches[0] if len(batches) == 1 else _joined(batches, now_ms)


def _piece_end(content: bytes, first: int) -> int:
    """Where a piece ends that begins at `first`: behind a line."""
    if len(content) - first <= PIECE_BYTES:
        return len(content)
    end = content.rfind(b"\n", first, first + PIECE_BYTES) + 1
    return end or content.find(b"\n", first + PIECE_BYTES) + 1 or len(content)


def _moved(wrong: BadRequest, line_count: int, row_count: int) -> BadRequest:
    """What is wrong with a piece, named by its place in the whole."""

    def place(found: re.Match[str]) -> str:
        before = line_count if found[1] == "line" else row_count
        return f"{found[1]} {int(found[2]) + before}"

    field = re.sub(r"\b(line|row) (\d+)$", place, wrong.field)
    return BadRequest(field, wrong.limit, wrong.value)


def _joined(batches: list[pa.RecordBatch], now_ms: int) -> pa.RecordBatch:
    """Batches as one; what only some of them have has its default in the others."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()[0]
    defaults = {"due": now_ms, "priority": limits.PRIORITY_DEFAULT}
    columns = {
        name: column.fill_null(defaults[name]) if name in defaults else column
        for name, column in zip(whole.schema.names, whole.columns, strict=True)
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def parse_lines(content: bytes) -> list[Any]:
    """The values of NDJSON lines; empty lines are left out. Raises BadRequest."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    try:
        values: list[Any] = orjson.loads(b"[" + b",".join(lines) + b"]")
    except orjson.JSONDecodeError:
        values = []
    if len(values) != len(lines):
        raise _wrong_line(content)
    return values


def _wrong_line(content: bytes) -> BadRequest:
    """What is wrong with the first line that is no JSON value."""
    for number, line in enumerate(content.split(b"\n")):
        if not line.strip():
            continue
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError as wrong:
            return BadRequest(f"line {number + 1}", f"JSON in UTF-8 ({wrong.msg})", line[:64])
    return BadRequest("body", "a JSON value in each line", content[:64])


def send_batch(messages: Sequence[Any], now_ms: int) -> pa.RecordBatch:
    """The batch of these messages, with columns of schema SEND.

    Args:
        messages: what JSON objects became.
        now_ms: what delays begin at.

    Raises:
        BadRequest: names the field and the row.
    """
    if not messages:
        raise BadRequest("messages", "at least one message", 0)
    if set(map(type, messages)) != {dict}:
        row = _first(messages, lambda message: type(message) is not dict)
        raise BadRequest(f"row {row}", "a JSON object", messages[row])
    names = set().union(*messages)
    if not names <= FIELDS:
        name = sorted(names - FIELDS)[0]
        row = _first(messages, lambda message: name in message)
        limit = f"one of {', '.join(sorted(FIELDS))}"
        raise BadRequest(f"{name} of row {row}", limit, messages[row][name])
    columns = {"payload": _payloads(messages, names)}
    dues = _dues(messages, names, now_ms)
    if dues is not None:
        columns["due"] = dues
    for name in names & {"key", "group"}:
        columns[name] = pa.array(_values(messages, name, "a text", str), pa.utf8())
    if "priority" in names:
        priorities = _numbers(messages, "priority", limits.PRIORITY_MAX)
        columns["priority"] = priorities.fill_null(limits.PRIORITY_DEFAULT).cast(pa.uint16())
    if "partition" in names:
        partitions = _numbers(messages, "partition", limits.PARTITIONS_MAX)
        if partitions.null_count < len(partitions):
            columns["partition"] = partitions.cast(pa.int32())
    if "tags" in names:
        columns["tags"] = _nested(_values(messages, "tags", "a list of texts", list), "tags", TAGS)
    if "headers" in names:
        values = _values(messages, "headers", "an object of texts", dict)
        pairs = [None if value is None else list(value.items()) for value in values]
        columns["headers"] = _nested(pairs, "headers", HEADERS)
    expires = _expires(messages, names, dues, now_ms)
    if expires is not None:
        columns["expires"] = expires
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _first(values: Sequence[Any], is_wrong: Callable[[Any], bool]) -> int:
    return next(place for place, value in enumerate(values) if is_wrong(value))


def _values(messages: Sequence[Any], name: str, limit: str, *kinds: type) -> Values:
    """A field of every message, None where there is none; BadRequest if one is of another type."""
    values = list(map(methodcaller("get", name), messages))
    allowed = {_NONE, *kinds}
    if not set(map(type, values)) <= allowed:
        row = _first(values, lambda value: type(value) not in allowed)
        raise BadRequest(f"{name} of row {row}", limit, values[row])
    return values


def _numbers(messages: Sequence[Any], name: str, high: int) -> pa.Int64Array:
    limit = f"a whole number from 0 to {high}"
    values = _values(messages, name, limit, int)
    try:
        column = pa.array(values, pa.int64())
    except OverflowError:
        column = None
    lowest_highest = pc.min_max(column).as_py() if column is not None else {"min": -1, "max": 0}
    lowest, highest = lowest_highest["min"], lowest_highest["max"]
    if lowest is not None and (lowest < 0 or highest > high):
        row = _first(values, lambda value: value is not None and not 0 <= value <= high)
        raise BadRequest(f"{name} of row {row}", limit, values[row])
    return column


def _nested(values: Values, name: str, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError):
        raise BadRequest(name, "texts, and nothing else inside", values[0]) from None


# --- payloads -----------------------------------------------------------------------------------


def _payloads(messages: Sequence[Any], names: set[str]) -> pa.BinaryArray:
    given = [name for name in _PAYLOADS if name in names]
    columns = [_PAYLOAD_OF[name](messages) for name in given]
    if len(columns) == 1:
        [column] = columns
    elif columns:
        given_count = np.sum([np.asarray(column.is_valid()) for column in columns], axis=0)
        if int(given_count.max()) > 1:
            row = int(given_count.argmax())
            raise BadRequest(f"payload of row {row}", f"one of {', '.join(_PAYLOADS)}", "several")
        column = pc.coalesce(*columns)
    if not columns or column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0]) if columns else 0
        limit = "a text; or payload_base64, or json"
        raise BadRequest(f"payload of row {row}", limit, None)
    return column


def _texts(messages: Sequence[Any]) -> pa.BinaryArray:
    values = _values(messages, "payload", "a text (payload_base64 takes bytes)", str)
    return pa.array(values, pa.utf8()).cast(pa.binary())


def _base64(messages: Sequence[Any]) -> pa.BinaryArray:
    values = _values(messages, "payload_base64", "a text in base64", str)
    try:
        return pa.array(list(map(_decoded, values)), pa.binary())
    except ValueError:
        row = _first(values, lambda value: not _is_base64(value))
        raise BadRequest(f"payload_base64 of row {row}", "base64", values[row]) from None


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else binascii.a2b_base64(text, strict_mode=True)


def _is_base64(text: str | None) -> bool:
    try:
        _decoded(text)
    except ValueError:
        return False
    return True


def _json(messages: Sequence[Any]) -> pa.BinaryArray:
    """Any JSON value, but null, which is none."""
    values = list(map(methodcaller("get", "json"), messages))
    try:
        texts = list(map(_as_json, values))
    except TypeError:  # what can be read may be nested more deeply than what can be written
        row = _first(values, lambda value: not _is_writable(value))
        limit = f"JSON that is nested at most {JSON_DEPTH_MAX} deep"
        raise BadRequest(f"json of row {row}", limit, "deeper") from None
    return pa.array(texts, pa.binary())


def _as_json(value: Any) -> bytes | None:
    return None if value is None else orjson.dumps(value)


def _is_writable(value: Any) -> bool:
    try:
        _as_json(value)
    except TypeError:
        return False
    return True


_PAYLOAD_OF = {"payload": _texts, "payload_base64": _base64, "json": _json}


# --- instants -----------------------------------------------------------------------------------


def instants(values: Values, name: str) -> pa.Int64Array:
    """UTC milliseconds of whole numbers and of ISO 8601 texts with a zone; nulls stay.

    A text is rounded up to the millisecond: down would be early (rule 2).

    Raises:
        BadRequest: names the row.
    """
    limit = "milliseconds since 1970 UTC, or a text as 2030-01-31T09:30:00Z"
    kinds = set(map(type, values))
    if not kinds <= {_NONE, int, str}:
        row = _first(values, lambda value: type(value) not in (_NONE, int, str))
        raise BadRequest(f"{name} of row {row}", limit, values[row])
    try:
        if str not in kinds:
            return pa.array(values, pa.int64())
        numbers = pa.array([value if type(value) is int else None for value in values], pa.int64())
        return pc.coalesce(numbers, _instants_of_texts(values))
    except (pa.ArrowException, OverflowError) as wrong:
        shown = next((value for value in values if type(value) is str), str(wrong))
        raise BadRequest(name, limit, shown) from None


def _instants_of_texts(values: Values) -> pa.Int64Array:
    texts = pa.array([value if type(value) is str else None for value in values], pa.utf8())
    exact_us = texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    up_ms = -(-exact_us.fill_null(0).to_numpy() // 1_000)
    return pa.array(up_ms, mask=np.asarray(texts.is_null()))


def _dues(messages: Sequence[Any], names: set[str], now_ms: int) -> pa.Int64Array | None:
    """Due times; what names none is due now."""
    dues = None
    if "due" in names:
        dues = instants(list(map(methodcaller("get", "due"), messages)), "due")
    if "delay_ms" in names:
        delays = _numbers(messages, "delay_ms", limits.INSTANT_MS_MAX)
        _refuse_both("due", dues, "delay_ms", delays)
        delayed = pc.add(delays, now_ms)
        dues = delayed if dues is None else pc.coalesce(dues, delayed)
    if dues is not None and dues.null_count:
        dues = dues.fill_null(now_ms)
    return dues


def _expires(
    messages: Sequence[Any], names: set[str], dues: pa.Int64Array | None, now_ms: int
) -> pa.Int64Array | None:
    expires = None
    if "expires" in names:
        expires = instants(list(map(methodcaller("get", "expires"), messages)), "expires")
    if "ttl_ms" in names:
        spans = _numbers(messages, "ttl_ms", limits.INSTANT_MS_MAX)
        _refuse_both("expires", expires, "ttl_ms", spans)
        ends = pc.add(spans, now_ms if dues is None else dues)
        expires = ends if expires is None else pc.coalesce(expires, ends)
    return expires


def _refuse_both(one: str, column: pa.Array | None, other: str, second: pa.Array) -> None:
    if column is None:
        return
    both = pc.and_(column.is_valid(), second.is_valid())
    if pc.any(both).as_py():
        row = int(np.flatnonzero(np.asarray(both))[0])
        raise BadRequest(f"{other} of row {row}", f"{one} or {other}, not both", "both")
