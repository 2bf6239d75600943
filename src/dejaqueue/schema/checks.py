"""The door's checks: a record batch from outside becomes checked columns, or a BadRequest.

Room: schema. Arrow compute and numpy over whole columns; no clock (time is an argument).
Holds: what passes has the right types, no nulls where none may be, and every value in its limits;
what does not is refused whole, with the field, the limit, the row and the value (rule 15).
Batches from outside have passed `arrival.check_arrival` before they come here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import packing
from dejaqueue.schema.arrival import check_unpacked
from dejaqueue.schema.instants import check_instants
from dejaqueue.schema.messages import CANCEL, DEFAULT_PRIORITY, MOVE, SEND, SETTLE
from dejaqueue.schema.references import payload_bytes
from dejaqueue.schema.text_columns import has_byte, text_bytes, text_offsets

_SCHEMAS = {
    "enqueue": SEND,
    "move": MOVE,
    "cancel": CANCEL,
    "ack": SETTLE,
    "nack": SETTLE,
    "extend": SETTLE,
}
_REQUIRED = {
    "enqueue": ("payload",),
    "move": (),
    "cancel": (),
    "ack": ("id", "attempts"),
    "nack": ("id", "attempts"),
    "extend": ("id", "attempts"),
}


@dataclass(slots=True)
class SendColumns:
    """A checked batch to send.

    Attributes:
        rows: how many.
        dues_ms: int64 array, shape (rows,).
        payloads: binary column; once it is stored, with references in it (references.py).
        keys, groups: utf8 columns, or None where no row has one; a row without is the empty text.
        tags, headers: packed texts (packing.py), or None.
        priorities: uint16 array, or None where all rows have the default.
        expires_ms: int64 array, 0 = never, or None where no row dies of age.
        partitions: int32 array of the producer's choice, or None.
        payload_bytes: bytes of all payloads together, wherever they are.
    """

    rows: int
    dues_ms: npt.NDArray[np.int64]
    payloads: pa.BinaryArray
    keys: pa.StringArray | None
    groups: pa.StringArray | None
    tags: pa.StringArray | None
    headers: pa.StringArray | None
    partitions: npt.NDArray[np.int32] | None
    payload_bytes: int
    priorities: npt.NDArray[np.uint16] | None = None
    expires_ms: npt.NDArray[np.int64] | None = None

    def take(self, indices: npt.NDArray[np.int64]) -> SendColumns:
        """The rows at these places."""
        places = pa.array(indices)

        def chosen(column: pa.Array | None) -> pa.Array | None:
            return None if column is None else column.take(places)

        payloads = self.payloads.take(places)
        return SendColumns(
            rows=len(indices),
            dues_ms=self.dues_ms[indices],
            payloads=payloads,
            keys=chosen(self.keys),
            groups=chosen(self.groups),
            tags=chosen(self.tags),
            headers=chosen(self.headers),
            partitions=None,
            payload_bytes=payload_bytes(payloads),
            priorities=None if self.priorities is None else self.priorities[indices],
            expires_ms=None if self.expires_ms is None else self.expires_ms[indices],
        )


@dataclass(slots=True)
class NamedRows:
    """A checked batch that names messages, by id or by key.

    Attributes:
        ids: int64 array, shape (rows,), or None if the rows name keys.
        keys: utf8 column, or None if the rows name ids.
        dues_ms, shifts_ms, priorities, groups: what a move changes, or None.
        if_dues_ms: when each has to be due to be moved or cancelled, -1 = whenever; or None.
        attempts: uint16 array of ack, nack, extend, or None.
    """

    rows: int
    ids: npt.NDArray[np.int64] | None = None
    keys: pa.StringArray | None = None
    dues_ms: npt.NDArray[np.int64] | None = None
    priorities: npt.NDArray[np.uint16] | None = None
    groups: pa.StringArray | None = None
    attempts: npt.NDArray[np.uint16] | None = None
    shifts_ms: npt.NDArray[np.int64] | None = None
    if_dues_ms: npt.NDArray[np.int64] | None = None


def check_schema(op: str, schema: pa.Schema) -> None:
    """Raise BadRequest if a stream of this schema can't carry `op`."""
    try:
        _check_schema(op, schema)
    except UnicodeDecodeError as wrong:  # names are read when they are asked for
        raise BadRequest("schema", "names in UTF-8", str(wrong)) from None


def _check_schema(op: str, schema: pa.Schema) -> None:
    wanted = _SCHEMAS[op]
    for field in schema:
        place = wanted.get_field_index(field.name)
        if place < 0:
            raise BadRequest(field.name, f"one of {', '.join(wanted.names)}", str(field.type))
        if not _castable(field.type, wanted.field(place).type):
            raise BadRequest(
                f"type of {field.name}", str(wanted.field(place).type), str(field.type)
            )
    if len(set(schema.names)) != len(schema.names):
        raise BadRequest("columns", "each name once", ", ".join(schema.names))
    for name in _REQUIRED[op]:
        if name not in schema.names:
            raise BadRequest(name, "a column of this name", ", ".join(schema.names))
    if op in ("move", "cancel") and ("id" in schema.names) == ("key" in schema.names):
        raise BadRequest("columns", "either id or key", ", ".join(schema.names))
    if op == "move" and not {"due", "by_ms", "priority", "group"} & set(schema.names):
        raise BadRequest("columns", "one of due, by_ms, priority, group", ", ".join(schema.names))
    if op == "move" and {"due", "by_ms"} <= set(schema.names):
        raise BadRequest("columns", "either due or by_ms", ", ".join(schema.names))


def _castable(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given == wanted:
        return True
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(given)
            and _is_text_or_null(given.key_type)
            and _is_text_or_null(given.item_type)
        )
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(given) or pa.types.is_large_list(given)
        return is_list and _is_text_or_null(given.value_type)
    if pa.types.is_dictionary(given):
        given = given.value_type
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binaries = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    if wanted == pa.binary():
        return any(is_type(given) for is_type in (*texts, *binaries))
    if wanted == pa.utf8():
        return any(is_type(given) for is_type in texts)
    if wanted == pa.int64():
        return bool(pa.types.is_integer(given) or pa.types.is_timestamp(given))
    return bool(pa.types.is_integer(given))


def _is_text_or_null(given: pa.DataType) -> bool:
    """What lists and maps may hold; Arrow calls the values of empty ones null."""
    return bool(pa.types.is_null(given)) or _castable(given, pa.utf8())


def _column(batch: pa.RecordBatch, name: str, wanted: pa.DataType) -> pa.Array | None:
    """The column in the wanted type, None if it is not there."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        return None
    column = batch.column(place)
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(column.type):
        # Rounded down to the millisecond would be early; up is late by less than one.
        # Of which zone they are said does not matter, and the zone may be one that nobody knows.
        column = column.view(pa.timestamp(column.type.unit))
        try:
            column = pc.ceil_temporal(column, unit="millisecond").cast(pa.timestamp("ms"))
        except pa.ArrowException as wrong:
            raise BadRequest(name, f"values that fit {wanted}", str(wrong)) from None
    return _cast(name, column, wanted)


def _cast(name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return column.cast(wanted)
    except pa.ArrowException as wrong:
        raise BadRequest(name, f"values that fit {wanted}", str(wrong)) from None


def _refuse_nulls(name: str, column: pa.Array) -> None:
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise BadRequest(f"{name} of row {row}", "a value", None)


def _check_bytes(name: str, column: pa.Array, byte_count_max: int) -> int:
    """Refuse a text longer than the limit; bytes of all of them."""
    offsets = text_offsets(column)
    byte_count = int(offsets[-1]) - int(offsets[0])
    if byte_count <= byte_count_max:  # then each of them is
        return byte_count
    lengths = np.diff(offsets)
    if len(lengths) and (most := int(lengths.max())) > byte_count_max:
        row = int(lengths.argmax())
        raise BadRequest(f"{name} of row {row}", f"at most {byte_count_max} bytes", most)
    return byte_count


def _check_batch_bytes(*texts: pa.Array | None, known: int = 0) -> None:
    """Refuse a batch that is larger than what is written in one append; `known`: bytes besides."""
    byte_count = known + sum(text_bytes(text) for text in texts if text is not None)
    if byte_count > limits.BATCH_BYTES_MAX:
        raise BadRequest("batch", f"at most {limits.BATCH_BYTES_MAX} bytes of texts", byte_count)


def _check_range(name: str, values: npt.NDArray[np.int64], low: int, high: int) -> None:
    if len(values) and (int(values.min()) < low or int(values.max()) > high):
        row = int(np.flatnonzero((values < low) | (values > high))[0])
        raise BadRequest(f"{name} of row {row}", f"from {low} to {high}", int(values[row]))


def _instants(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64] | None:
    column = _column(batch, name, pa.int64())
    if column is None:
        return None
    _refuse_nulls(name, column)
    values = _int64s(column)
    check_instants(name, values)
    return values


def _int64s(column: pa.Array) -> npt.NDArray[np.int64]:
    """An int64 column without nulls; as `to_numpy`, for a third of its price."""
    end = column.offset + len(column)
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(0, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64, count=end)[column.offset :]


def _text(batch: pa.RecordBatch, name: str, byte_count_max: int) -> pa.Array | None:
    """An optional utf8 column, None if every row is empty; nulls become the empty text."""
    column = _column(batch, name, pa.utf8())
    if column is None or column.null_count == len(column):
        return None
    if column.null_count:
        column = column.fill_null("")
    _check_bytes(name, column, byte_count_max)
    return column if text_bytes(column) else None


def _tags(batch: pa.RecordBatch) -> pa.Array | None:
    place = batch.schema.get_field_index("tags")
    if place < 0 or batch.column(place).null_count == batch.num_rows:
        return None
    column = _cast("tags", batch.column(place), pa.list_(pa.utf8()))
    counts = np.asarray(pc.list_value_length(column).fill_null(0))
    if int(counts.max()) > limits.TAGS_MAX:
        row = int(counts.argmax())
        raise BadRequest(f"tags of row {row}", f"at most {limits.TAGS_MAX}", int(counts[row]))
    values = column.flatten()
    if not len(values):
        return None
    _refuse_nulls("tags", values)
    _check_bytes("tags", values, limits.TAG_BYTES_MAX)
    _refuse_separators("tags", values)
    if pc.any(pc.equal(values, "")).as_py():
        raise BadRequest("tags", "no empty tag", "")
    return packing.pack_tags(column)


def _refuse_separators(name: str, values: pa.Array) -> None:
    # A byte of a longer character is never one of these: bytes are looked at, a twentieth of the
    # price of a pattern.
    if has_byte(values, packing.SEPARATORS):
        raise BadRequest(name, "no U+001E or U+001F inside", "a control character")


def _headers(batch: pa.RecordBatch) -> pa.Array | None:
    place = batch.schema.get_field_index("headers")
    if place < 0 or batch.column(place).null_count == batch.num_rows:
        return None
    headers = _cast("headers", batch.column(place), pa.map_(pa.utf8(), pa.utf8()))
    _, first, last = packing.list_bounds(headers)
    names = headers.keys.slice(first, last - first)
    values = headers.items.slice(first, last - first)
    if not len(names):
        return None
    _refuse_nulls("headers", values)
    _refuse_separators("headers", names)
    _refuse_separators("headers", values)
    if pc.any(pc.equal(names, "")).as_py():
        raise BadRequest("headers", "no empty name", "")
    packed = packing.pack_headers(headers)
    _check_bytes("headers", packed, limits.HEADERS_BYTES_MAX)
    return packed


def _priorities(batch: pa.RecordBatch) -> npt.NDArray[np.uint16] | None:
    column = _column(batch, "priority", pa.uint16())
    if column is None:
        return None
    _refuse_nulls("priority", column)
    priorities: npt.NDArray[np.uint16] = column.to_numpy()
    return priorities


def _expires(batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    column = _column(batch, "expires", pa.int64())
    if column is None or column.null_count == len(column):
        return None
    expires_ms: npt.NDArray[np.int64] = column.fill_null(0).to_numpy()
    check_instants("expires", expires_ms)
    return expires_ms if expires_ms.any() else None


def check_send(batch: pa.RecordBatch, topic: Topic, now_ms: int) -> SendColumns:
    """The checked columns of a batch to send.

    Args:
        now_ms: due time of rows that name none, and the start of `max_delay_ms`.

    Raises:
        BadRequest: names the field, the row, the limit and the value.
    """
    rows = batch.num_rows
    if not 1 <= rows <= limits.BATCH_ROWS_MAX:
        raise BadRequest("rows of the batch", f"from 1 to {limits.BATCH_ROWS_MAX}", rows)
    check_unpacked(batch)  # before anything below casts a column, which unpacks it
    payloads = _column(batch, "payload", pa.binary())
    if payloads is None:
        raise BadRequest("payload", "a column of this name", ", ".join(batch.schema.names))
    _refuse_nulls("payload", payloads)
    most = min(topic.max_payload_bytes, limits.PAYLOAD_BYTES_MAX)
    payload_bytes = _check_bytes("payload", payloads, most)
    dues_ms = _instants(batch, "due")
    if dues_ms is None:
        dues_ms = np.full(rows, now_ms, dtype=np.int64)
    elif topic.max_delay_ms:
        _check_range("due", dues_ms, 0, now_ms + topic.max_delay_ms)
    keys = _text(batch, "key", limits.KEY_BYTES_MAX)
    partitions = _column(batch, "partition", pa.int32())
    if partitions is not None:
        _refuse_nulls("partition", partitions)
        if keys is not None:
            raise BadRequest("partition", "not together with key, which decides it", "both")
        partitions = partitions.to_numpy()
        _check_range("partition", partitions, 0, topic.partitions - 1)
    priorities = _priorities(batch)
    # All at the default is the same as none, and saves a column in the journal and the engine.
    if priorities is not None and bool((priorities == DEFAULT_PRIORITY).all()):
        priorities = None
    groups = _text(batch, "group", limits.GROUP_BYTES_MAX)
    tags, headers = _tags(batch), _headers(batch)
    _check_batch_bytes(keys, groups, tags, headers, known=payload_bytes)
    return SendColumns(
        rows=rows,
        dues_ms=dues_ms,
        payloads=payloads,
        keys=keys,
        groups=groups,
        tags=tags,
        headers=headers,
        partitions=partitions,
        payload_bytes=payload_bytes,
        priorities=priorities,
        expires_ms=_expires(batch),
    )


def _group_names(batch: pa.RecordBatch) -> pa.Array | None:
    """A column of groups, of which "" is one."""
    groups = _column(batch, "group", pa.utf8())
    if groups is None:
        return None
    groups = groups.fill_null("")
    _check_bytes("group", groups, limits.GROUP_BYTES_MAX)
    return groups


def _shifts(batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """By how much each row is due later, or earlier if negative."""
    column = _column(batch, "by_ms", pa.int64())
    if column is None:
        return None
    _refuse_nulls("by_ms", column)
    shifts_ms: npt.NDArray[np.int64] = column.to_numpy()
    _check_range("by_ms", shifts_ms, -limits.INSTANT_MS_MAX, limits.INSTANT_MS_MAX)
    return shifts_ms


def _conditions(batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """When each row has to be due; -1 = whenever."""
    column = _column(batch, "if_due", pa.int64())
    if column is None or column.null_count == len(column):
        return None
    given = column.drop_null().to_numpy()
    _check_range("if_due", given, 0, limits.INSTANT_MS_MAX)
    if_dues_ms: npt.NDArray[np.int64] = column.fill_null(-1).to_numpy()
    return if_dues_ms


def check_named(op: str, batch: pa.RecordBatch) -> NamedRows:
    """The checked columns of a batch of moves, cancels, acks, nacks or extends.

    Raises:
        BadRequest: names the field, the row, the limit and the value.
    """
    rows = batch.num_rows
    if not 1 <= rows <= limits.BATCH_ROWS_MAX:
        raise BadRequest("rows of the batch", f"from 1 to {limits.BATCH_ROWS_MAX}", rows)
    check_unpacked(batch)
    named = NamedRows(rows)
    ids = _column(batch, "id", pa.int64())
    if ids is not None:
        _refuse_nulls("id", ids)
        named.ids = ids.to_numpy()
        _check_range("id", named.ids, 0, (1 << 63) - 1)
    keys = _column(batch, "key", pa.utf8())
    if keys is not None:
        _refuse_nulls("key", keys)
        _check_bytes("key", keys, limits.KEY_BYTES_MAX)
        named.keys = keys
    if op == "move":
        named.dues_ms = _instants(batch, "due")
        named.shifts_ms = _shifts(batch)
        named.priorities = _priorities(batch)
        named.groups = _group_names(batch)
    if op in ("move", "cancel"):
        named.if_dues_ms = _conditions(batch)
    attempts = _column(batch, "attempts", pa.uint16())
    if attempts is not None:
        _refuse_nulls("attempts", attempts)
        named.attempts = attempts.to_numpy()
    _check_batch_bytes(named.keys, named.groups)
    return named
