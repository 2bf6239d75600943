"""The columns of history: what happened to each message, and when.

Room: schema. Names and types only; broker/history/ writes and reads them.
Holds: a file has the columns of STORED; its path says the topic, the partition and the hour.
See: docs/guides/history.md for what each column means.
"""

from __future__ import annotations

import pyarrow as pa

from dejaqueue.model import ChangeKind

CHANGE_NAMES = tuple(kind.name.lower() for kind in ChangeKind)
"""The name of each ChangeKind, by its number."""

STORED = pa.schema(
    [
        pa.field("change", pa.utf8(), nullable=False),
        pa.field("at_ms", pa.int64(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("due", pa.int64()),
        pa.field("key", pa.utf8()),
        pa.field("group", pa.utf8()),
        pa.field("priority", pa.int32(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("lateness_ms", pa.int64()),
        pa.field("ahead_ms", pa.int64()),
        pa.field("consumer", pa.utf8()),
        pa.field("reason", pa.utf8()),
        pa.field("missed", pa.int64()),
    ]
)
"""The columns of a file."""

HISTORY = pa.schema(
    [
        pa.field("topic", pa.utf8(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *STORED,
    ]
)
"""What the broker answers: the columns of a file, and what its path says."""
