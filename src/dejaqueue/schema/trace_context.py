"""A trace's context in the headers of messages (W3C Trace Context), for one message or a column.

Room: schema. Knows no tracing library; client/tracing.py and the HTTP API use it.
Holds: headers that the user set are left alone, and a message that has no room for more stays as it
is: tracing never refuses a message.
See: docs/guides/tracing.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.schema.messages import HEADERS

PARENT = "traceparent"
STATE = "tracestate"
STATE_BYTES_MAX = 512
"""The length that the standard obliges everybody to carry; longer values are not passed on."""


def with_context(headers: Mapping[str, str], context: Mapping[str, str]) -> dict[str, str]:
    """Headers with the context, if they have none of their own, as far as there is room."""
    carried = dict(headers)
    if PARENT in carried:
        return carried
    room = limits.HEADERS_BYTES_MAX + 1  # the last one needs no separator behind it
    room -= sum(_byte_count(*pair) for pair in carried.items())
    for name in (PARENT, STATE):
        if name not in context:
            continue
        room -= _byte_count(name, context[name])
        if room >= 0:
            carried.setdefault(name, context[name])
    return carried


def batch_with_context(batch: pa.RecordBatch, context: Mapping[str, str]) -> pa.RecordBatch:
    """The batch with the context in each row; if any row has headers of its own, as it is."""
    place = batch.schema.get_field_index("headers")
    if place >= 0 and batch.column(place).null_count < batch.num_rows:
        return batch
    column = same_headers(context, batch.num_rows)
    if place >= 0:
        return batch.set_column(place, "headers", column)
    return batch.append_column("headers", column)


def same_headers(headers: Mapping[str, str], rows: int) -> pa.MapArray:
    """A column of headers that are the same in every row."""
    count = len(headers)
    places = pa.array(np.tile(np.arange(count, dtype=np.int32), rows))
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(count)
    names = pa.array(list(headers), pa.utf8()).take(places)
    values = pa.array(list(headers.values()), pa.utf8()).take(places)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values).cast(HEADERS)


def _byte_count(name: object, value: object) -> int:
    """Bytes of a header as it is kept, with a separator within and one behind."""
    return len(str(name).encode()) + len(str(value).encode()) + 2
