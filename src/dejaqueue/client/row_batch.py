"""Single messages that share a batch, in the form of whatever channel they go out on.

Room: client. Values in, bytes or a record batch out.
Holds: a batch that is sent again has the same bytes; what cannot be encoded is found when it is
made, and not when it is sent.
See: sending/gather.py, which makes them; lane.py, which sends them as they are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.schema import messages
from dejaqueue.schema.plain import binary_column, int64_column
from dejaqueue.wire import lane

_PAYLOADS = pa.schema([messages.SEND.field("payload")])
_WITH_DUES = pa.schema([messages.SEND.field("payload"), messages.SEND.field("due")])


class RowBatch:
    """Messages that have a payload, and all or none of them a due time.

    Attributes:
        num_rows: how many.
        content: as a lane has them.

    Raises:
        struct.error, TypeError: a payload is no bytes, or a due time no int64.
    """

    __slots__ = ("_dues_ms", "_payloads", "content", "num_rows")

    def __init__(self, payloads: list[bytes], dues_ms: list[int] | None) -> None:
        self._payloads, self._dues_ms = payloads, dues_ms
        self.num_rows = len(payloads)
        self.content = lane.encode_rows(payloads, dues_ms)

    @property
    def has_dues(self) -> bool:
        """True if each row has its own due time."""
        return self._dues_ms is not None

    def record_batch(self) -> pa.RecordBatch:
        """The same for a channel of batches."""
        payloads = binary_column(self._payloads)
        if self._dues_ms is None:
            return pa.RecordBatch.from_arrays([payloads], schema=_PAYLOADS)
        columns = [payloads, int64_column(np.array(self._dues_ms, dtype=np.int64))]
        return pa.RecordBatch.from_arrays(columns, schema=_WITH_DUES)
