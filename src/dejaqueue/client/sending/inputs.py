"""What users send, made into record batches of the wire's schema.

Room: client. Knows Arrow types and Python values; not connections.
Holds: batches that come out have columns of `schema.messages` in its order and types, at most
`ROWS_MAX` rows and about `BYTES_MAX` bytes each; anything else is a BadRequest that names the
column, what it should be, and what came (rule 15).
See: docs/wire.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.sending.content import NOTHING, content_of
from dejaqueue.client.sending.fields import CHECKS
from dejaqueue.errors import BadRequest
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import messages
from dejaqueue.schema.instants import check_instant, check_instants

ROWS_MAX = 8_192
"""Rows of one batch on the wire."""
BYTES_MAX = 8 << 20
"""Payload bytes of one batch on the wire, about."""

Due = datetime | int | None
Delay = timedelta | float | int | None


def due_ms_of(due: object, field: str = "due", *, is_bound: bool = False) -> int:
    """UTC milliseconds of a due time.

    Args:
        is_bound: it bounds a range of due times, so small numbers are no mistake.

    Raises:
        BadRequest: it is a naive datetime (nobody knows its time zone), out of range, or neither
            a datetime nor a whole number of milliseconds.
    """
    if isinstance(due, int) and not isinstance(due, bool):
        due_ms = due
    elif isinstance(due, datetime):
        if due.tzinfo is None:
            raise BadRequest(
                field, "a datetime with a time zone, as datetime(..., tzinfo=timezone.utc)", due
            )
        # Rounded up: handing over a part of a millisecond early would still be early.
        since = due - _EPOCH
        due_ms = -(
            -(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000
        )
    elif isinstance(due, np.integer):
        due_ms = int(due)
    else:
        raise BadRequest(field, "a datetime with a time zone, or UTC milliseconds", due)
    if not (is_bound and 0 <= due_ms < limits.INSTANT_MS_MIN):
        check_instant(field, due_ms)
    return due_ms


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def delay_ms_of(delay: object, field: str = "delay") -> int:
    """Milliseconds of a delay: a timedelta, or seconds. Raises BadRequest."""
    if isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        seconds = float(delay)
    else:
        raise BadRequest(field, "a timedelta, or seconds", delay)
    if not 0 <= seconds * 1000 <= limits.INSTANT_MS_MAX:  # not a number fails this, too
        raise BadRequest(field, "not negative, and within the year 9999", delay)
    return round(seconds * 1000)


def expires_ms_of(expires: object, ttl: object, due_ms: int, where: str = "") -> int | None:
    """When a message dies, UTC milliseconds; None = never. Raises BadRequest.

    Args:
        expires: a datetime with a time zone, or UTC milliseconds.
        ttl: instead: so long after `due_ms`, a timedelta or seconds.
        where: what the fields belong to, for errors' texts, with a dot behind it.
    """
    if ttl is None:
        return None if expires is None else due_ms_of(expires, f"{where}expires")
    if expires is not None:
        raise BadRequest(f"{where}ttl", "expires or ttl, not both", ttl)
    return due_ms_of(due_ms + delay_ms_of(ttl, f"{where}ttl"), f"{where}ttl")


def reason_of(reason: object) -> str:
    """Why a message was refused, as the wire takes it: cut to its limit. Raises BadRequest."""
    if not isinstance(reason, str):
        raise BadRequest("reason", "a text", reason)
    shown = reason.translate(_SEPARATORS)
    return shown.encode(errors="replace")[: limits.REASON_BYTES_MAX].decode(errors="ignore")


_SEPARATORS = {0x1E: " ", 0x1F: " "}


def dues_of(due: object, rows: int, field: str = "due") -> npt.NDArray[np.int64]:
    """A due time per row, from one for all, or from one for each. Raises BadRequest."""
    if isinstance(due, datetime | int):
        return np.full(rows, due_ms_of(due, field), dtype=np.int64)
    if isinstance(due, pa.Array | pa.ChunkedArray):
        column = _cast(due, messages.SEND.field("due"))
        dues = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
    elif isinstance(due, np.ndarray):
        return dues_of(_numpy_array(due, field), rows, field)
    elif isinstance(due, Sequence) and not isinstance(due, str | bytes):
        dues = np.array([due_ms_of(one, field) for one in due], dtype=np.int64)
    elif hasattr(due, "__arrow_c_array__") or hasattr(due, "__arrow_c_stream__"):
        return dues_of(pa.chunked_array(due), rows, field)
    else:
        raise BadRequest(field, "one due time, or one per row", due)
    if len(dues) != rows:
        raise BadRequest(field, f"one due time, or one for each of the {rows} rows", len(dues))
    check_instants(field, dues)
    return dues


def int64s_of(values: object, field: str) -> npt.NDArray[np.int64]:
    """Whole numbers as int64 array, shape (n,). Raises BadRequest."""
    try:
        if isinstance(values, np.ndarray):
            if values.dtype.kind not in "iu" or values.ndim != 1:
                raise BadRequest(field, "whole numbers in one dimension", values.dtype)
            return values.astype(np.int64, copy=False)
        array = pa.array(values) if not isinstance(values, pa.Array | pa.ChunkedArray) else values
        if len(array) == 0:
            return np.zeros(0, dtype=np.int64)
        if not pa.types.is_integer(array.type) or array.null_count:
            raise BadRequest(field, "whole numbers, without nulls", array.type)
        return np.asarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowException, TypeError, OverflowError) as wrong:
        raise BadRequest(field, "whole numbers", str(wrong)) from None


def texts_of(values: object, field: str) -> pa.Array:
    """Texts as a utf8 array without nulls. Raises BadRequest."""
    if isinstance(values, str):
        raise BadRequest(field, "several texts; one has a field of its own", values)
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowException, TypeError) as wrong:
        raise BadRequest(field, "texts", str(wrong)) from None
    if len(array) == 0:
        return pa.array([], pa.utf8())
    column = _cast(array, pa.field(field, pa.utf8()))
    if column.null_count:
        raise BadRequest(field, "a text in every row", None)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def batches_of(rows: object, now_ms: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """The record batches to send: what was given, cast, checked and split.

    Args:
        rows: a list of dicts; a pyarrow RecordBatch, Table or reader; any object with
            `__arrow_c_stream__` (polars, pandas from 2.2, duckdb …).
        now_ms: the broker's time; called for a delay, and for a message without a due time among
            others that have one.

    Raises:
        BadRequest: a column or value is wrong; an earlier batch may have come out already.
    """
    if isinstance(rows, pa.RecordBatch):
        yield from split(conform(rows))
    elif isinstance(rows, pa.Table):
        for batch in rows.to_batches():
            yield from split(conform(batch))
    elif isinstance(rows, pa.RecordBatchReader):
        for batch in rows:
            yield from split(conform(batch))
    elif hasattr(rows, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(rows)
        except (pa.ArrowException, TypeError) as wrong:
            raise BadRequest("messages", "a table that Arrow can read", str(wrong)) from None
        yield from batches_of(reader, now_ms)
    elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping):
        yield from _batches_of_dicts(rows, now_ms)
    else:
        raise BadRequest("messages", "a list of dicts, or an Arrow table", type(rows).__name__)


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the columns of SEND, in its order and types.

    Cost: nothing but a comparison when it conforms already.
    """
    names = batch.schema.names
    for name in names:
        if name not in messages.SEND.names:
            raise BadRequest(name, f"a column out of {', '.join(messages.SEND.names)}", name)
    if "payload" not in names:
        raise BadRequest("payload", "a column of this name", ", ".join(names))
    if len(set(names)) != len(names):
        raise BadRequest("messages", "each column once", ", ".join(names))
    wanted = [field for field in messages.SEND if field.name in names]
    if len(wanted) == len(names) and all(
        have.name == want.name and have.type == want.type and have.nullable == want.nullable
        for have, want in zip(batch.schema, wanted, strict=True)
    ):
        _check_nulls(batch, wanted)
        return batch.replace_schema_metadata(None) if batch.schema.metadata else batch
    arrays = [_cast(batch.column(field.name), field) for field in wanted]
    conformed = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(wanted))
    _check_nulls(conformed, wanted)
    return conformed


def _check_nulls(batch: pa.RecordBatch, fields: list[pa.Field]) -> None:
    for index, field in enumerate(fields):
        if not field.nullable and batch.column(index).null_count:
            raise BadRequest(field.name, "a value in every row", None)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column in the wire's type; BadRequest if its values do not fit."""
    have, want = column.type, field.type
    if have == want:
        return column
    try:
        if pa.types.is_dictionary(have):
            return _cast(pc.cast(column, have.value_type), field)
        if field.name in ("due", "expires"):
            return _cast_due(column, field)
        if field.name == "payload" and pa.types.is_string_view(have):
            column = pc.cast(column, pa.large_utf8())
        if want == pa.utf8() and not _is_text(have) and not pa.types.is_null(have):
            raise BadRequest(field.name, "a column of texts", have)
        return pc.cast(column, want)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as wrong:
        raise BadRequest(field.name, f"a column that fits {want}", f"{have}: {wrong}") from None


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _cast_due(column: pa.Array, field: pa.Field) -> pa.Array:
    """Timestamps of any unit and zone, or whole milliseconds, as int64 milliseconds."""
    have = column.type
    if pa.types.is_timestamp(have):
        if have.tz is None:
            raise BadRequest(field.name, "timestamps with a time zone, or UTC milliseconds", have)
        if have.unit == "s":
            return pc.cast(pc.cast(column, pa.timestamp("ms", have.tz)), pa.int64())
        ticks = pc.cast(column, pa.int64())
        per_ms = {"ms": 1, "us": 1_000, "ns": 1_000_000}[have.unit]
        if per_ms == 1:
            return ticks
        # Rounded up, as due_ms_of does.
        floor = pc.divide(ticks, per_ms)
        return pc.add(floor, pc.cast(pc.less(pc.multiply(floor, per_ms), ticks), pa.int64()))
    if not pa.types.is_integer(have):
        raise BadRequest(field.name, "timestamps with a time zone, or UTC milliseconds", have)
    return pc.cast(column, field.type)


def _numpy_array(values: npt.NDArray[Any], field: str) -> pa.Array:
    if values.dtype.kind == "M":  # numpy's datetime64 is UTC by its definition
        return pa.array(values.astype("datetime64[ms]").astype(np.int64))
    if values.dtype.kind not in "iu":
        raise BadRequest(field, "whole milliseconds, or datetime64", values.dtype)
    return pa.array(values)


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most ROWS_MAX rows and about BYTES_MAX bytes; nothing is copied."""
    rows = batch.num_rows
    if rows == 0:
        return
    average = max(batch.nbytes // rows, 1) if rows > 1 else 1
    step = max(1, min(ROWS_MAX, BYTES_MAX // average))
    for start in range(0, rows, step):
        yield from _split_bytes(
            batch.slice(start, min(step, rows - start)) if step < rows else batch
        )


def _split_bytes(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a slice whose rows are far above the average."""
    if batch.num_rows > 1 and batch.nbytes > 2 * BYTES_MAX:
        half = batch.num_rows // 2
        yield from _split_bytes(batch.slice(0, half))
        yield from _split_bytes(batch.slice(half))
    else:
        yield batch


_DICT_FIELDS = (
    "payload",
    "json",
    "due",
    "delay",
    "key",
    "group",
    "priority",
    "tags",
    "headers",
    "expires",
    "ttl",
    "partition",
)


def _batches_of_dicts(rows: Iterable[Any], now_ms: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """Messages given as dicts (or as bytes or str: payloads)."""
    taken: list[Mapping[str, Any]] = []
    first = byte_count = 0
    for index, row in enumerate(rows):
        message: Any = {"payload": row} if isinstance(row, bytes | str) else row
        if not isinstance(message, Mapping):
            raise BadRequest(f"messages[{index}]", "a dict, bytes or str", type(row).__name__)
        for name in message:
            if name not in _DICT_FIELDS:
                raise BadRequest(
                    f"messages[{index}].{name}", f"one of {', '.join(_DICT_FIELDS)}", name
                )
        if "payload" not in message and "json" not in message:
            raise BadRequest(f"messages[{index}].payload", "a value", None)
        value = message.get("json", NOTHING)
        content = content_of(message.get("payload"), value, f"messages[{index}].")
        taken.append({**message, "payload": content})
        byte_count += len(content)
        if len(taken) >= ROWS_MAX or byte_count >= BYTES_MAX:
            yield batch_of_dicts(taken, now_ms, first)
            first, taken, byte_count = index + 1, [], 0
    if taken:
        yield batch_of_dicts(taken, now_ms, first)


def batch_of_dicts(
    rows: Sequence[Mapping[str, Any]], now_ms: Callable[[], int], first: int = 0
) -> pa.RecordBatch:
    """The record batch of these messages; `first` is the place of row 0, for errors' texts."""
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    due_times: npt.NDArray[np.int64] | None = None
    for field in messages.SEND:
        values = [row.get(field.name) for row in rows]
        if field.name == "payload":
            column = pa.array(values, pa.binary())
        elif field.name == "due":
            dues = _dues_of_dicts(rows, now_ms, first)
            if dues is None:
                continue
            column = pa.array(dues)
            due_times = dues
        elif field.name == "expires":
            expires_ms = _expires_of_dicts(rows, due_times, now_ms, first)
            if expires_ms is None:
                continue
            column = pa.array(expires_ms, pa.int64())
        elif all(value is None for value in values):
            continue
        else:
            column = _column_of(values, field, first)
        arrays.append(column)
        fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _dues_of_dicts(
    rows: Sequence[Mapping[str, Any]], now_ms: Callable[[], int], first: int
) -> npt.NDArray[np.int64] | None:
    """A due time per row; None if no row has one, so that all are due on arrival."""
    dues = np.full(len(rows), -1, dtype=np.int64)
    now = -1
    for index, row in enumerate(rows):
        due, delay = row.get("due"), row.get("delay")
        where = f"messages[{first + index}]"
        if due is not None and delay is not None:
            raise BadRequest(f"{where}.delay", "due or delay, not both", delay)
        if due is not None:
            dues[index] = due_ms_of(due, f"{where}.due")
        elif delay is not None:
            now = now_ms() if now < 0 else now
            dues[index] = now + delay_ms_of(delay, f"{where}.delay")
    missing = dues < 0
    if missing.all():
        return None
    if missing.any():
        dues[missing] = now_ms() if now < 0 else now
    return dues


def _expires_of_dicts(
    rows: Sequence[Mapping[str, Any]],
    dues_ms: npt.NDArray[np.int64] | None,
    now_ms: Callable[[], int],
    first: int,
) -> list[int | None] | None:
    """When each row dies; None if none does."""
    if all(row.get("expires") is None and row.get("ttl") is None for row in rows):
        return None
    now = now_ms() if dues_ms is None else 0
    return [
        expires_ms_of(
            row.get("expires"),
            row.get("ttl"),
            now if dues_ms is None else int(dues_ms[index]),
            f"messages[{first + index}].",
        )
        for index, row in enumerate(rows)
    ]


def _column_of(values: list[Any], field: pa.Field, first: int) -> pa.Array:
    """A column of values that are checked one by one, so that the error names the message."""
    check = CHECKS.get(field.name)
    if check is not None:
        values = [
            check(f"messages[{first + index}].{field.name}", value)
            for index, value in enumerate(values)
        ]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as wrong:
        for index, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, TypeError, OverflowError):
                where = f"messages[{first + index}].{field.name}"
                raise BadRequest(where, f"a value of {field.type}", value) from None
        raise BadRequest(field.name, f"values of {field.type}", str(wrong)) from None
