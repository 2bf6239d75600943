"""Single messages that share a batch, in the form of whatever channel they go out on.

Room: client. Values in, bytes or a record batch out.
Holds: a batch that is sent again has the same bytes; what cannot be encoded is found when it is
made, and not when it is sent.
See: sending/gather.py, which makes them; lane.py, which sends them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.schema import messages
from dejaqueue.schema.plain import (
    binary_column,
    int64_column,
    optional_column,
    text_column,
    uint16_column,
)
from dejaqueue.schema.row_fields import Fields
from dejaqueue.wire import lane

_MORE = ("key", "group", "priority", "tags", "headers", "expires")

More: TypeAlias = tuple[
    Sequence[str | None],
    Sequence[str],
    Sequence[int],
    Sequence[Sequence[str] | None],
    Sequence[Sequence[tuple[str, str]] | None],
    Sequence[int | None],
]
"""Keys, groups, priorities, tags, headers and ends of life of rows."""


def schema_of(*, has_due: bool, has_more: bool) -> pa.Schema:
    """The schema of a batch of single messages."""
    names = ["payload"]
    if has_due:
        names.append("due")
    if has_more:
        names += _MORE
    return pa.schema([messages.SEND.field(name) for name in names])


_SCHEMAS = {
    (due, more): schema_of(has_due=due, has_more=more)
    for due in (False, True)
    for more in (False, True)
}


class RowBatch:
    """Messages that all or none of them have a due time, and all or none of them more.

    Attributes:
        num_rows: how many.
        content: as a lane has them.

    Raises:
        struct.error, TypeError, ValueError: a value is none that a message can have.
    """

    __slots__ = ("_dues_ms", "_more", "_payloads", "content", "has_fields", "num_rows")

    def __init__(
        self, payloads: list[bytes], dues_ms: list[int] | None, more: More | None = None
    ) -> None:
        self._payloads, self._dues_ms, self._more = payloads, dues_ms, more
        self.num_rows = len(payloads)
        fields = None if more is None else _fields_of(more)
        self.has_fields = fields is not None
        self.content = lane.encode_rows(payloads, dues_ms, fields)

    @property
    def has_dues(self) -> bool:
        """True if each row has its own due time."""
        return self._dues_ms is not None

    def record_batch(self) -> pa.RecordBatch:
        """The same for a channel of batches."""
        return record_batch(self._payloads, self._dues_ms, self._more)


def record_batch(
    payloads: list[bytes], dues_ms: list[int] | None, more: More | None
) -> pa.RecordBatch:
    """Messages as columns. Raises what `_NO_VALUES` of sending/gather.py names."""
    arrays = [binary_column(payloads)]
    if dues_ms is not None:
        arrays.append(int64_column(np.array(dues_ms, dtype=np.int64)))
    if more is not None:
        keys, groups, priorities, tags, headers, expires = more
        arrays += [
            optional_column(keys, pa.utf8()),
            text_column(groups),
            uint16_column(priorities),
            optional_column(tags, messages.TAGS),
            optional_column(headers, messages.HEADERS),
            optional_column(expires, pa.int64()),
        ]
    schema = _SCHEMAS[dues_ms is not None, more is not None]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fields_of(more: More) -> Fields | None:
    """The same as a lane has them; None = no row has any."""
    keys, groups, priorities, tags, headers, expires = more
    fields = Fields()
    if any(keys):
        fields.keys = [b"" if key is None else key.encode() for key in keys]
    if any(groups):
        fields.groups = [group.encode() for group in groups]
    if any(priority != limits.PRIORITY_DEFAULT for priority in priorities):
        fields.priorities = list(priorities)
    if any(tags):
        fields.tags = [[tag.encode() for tag in of_row or ()] for of_row in tags]
    if any(headers):
        fields.headers = [
            [text.encode() for pair in of_row or () for text in pair] for of_row in headers
        ]
    if any(expires):
        fields.expires_ms = [expires_ms or 0 for expires_ms in expires]
    return None if fields == Fields() else fields
