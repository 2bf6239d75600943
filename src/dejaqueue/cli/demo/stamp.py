"""When rows arrived: Spark's workers stamp them with their own clock.

Room: cli. Loaded by Spark's workers, so it loads next to nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dejaqueue.clock import SystemClock

SCHEMA = "key string, payload binary, received_ms bigint"


def stamp(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with `received_ms`, UTC milliseconds, rounded down: never later than it was."""
    clock = SystemClock()
    for batch in batches:
        now = pa.repeat(pa.scalar(clock.now_ms(), pa.int64()), batch.num_rows)
        columns = [batch.column("key"), batch.column("payload"), now]
        yield pa.RecordBatch.from_arrays(columns, names=["key", "payload", "received_ms"])
