"""A few messages to send that are not columns yet.

Room: schema. Plain Python; Arrow only where they become columns.
Holds: what passes `check_rows` would pass `check_send`, and is refused by the same words if not.
See: checks.py; broker/partition/merging.py, which makes columns of those that came together.

A batch of one costs more to be made, checked and joined as Arrow columns than all else that is done
to it. So these stay lists until they are joined with what waits beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.instants import check_instants
from dejaqueue.schema.plain import binary_column


@dataclass(slots=True)
class SendRows:
    """Checked messages with nothing but a payload and a due time.

    Attributes:
        payload_bytes: of all payloads together.
    """

    payloads: list[bytes]
    dues_ms: list[int]
    payload_bytes: int

    keys = groups = tags = headers = partitions = priorities = expires_ms = None

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.dues_ms)

    def columns(self) -> SendColumns:
        """The same as columns."""
        return joined_columns([self])

    def take(self, indices: npt.NDArray[np.int64]) -> SendColumns:
        """The rows at these places."""
        return self.columns().take(indices)


def joined_columns(parts: list[SendRows]) -> SendColumns:
    """The rows of all of them, one after the other."""
    dues_ms = [due_ms for part in parts for due_ms in part.dues_ms]
    return SendColumns(
        rows=len(dues_ms),
        dues_ms=np.array(dues_ms, dtype=np.int64),
        payloads=binary_column([payload for part in parts for payload in part.payloads]),
        keys=None,
        groups=None,
        tags=None,
        headers=None,
        partitions=None,
        payload_bytes=sum(part.payload_bytes for part in parts),
    )


def check_rows(
    payloads: list[bytes], dues_ms: list[int] | None, topic: Topic, now_ms: int
) -> SendRows:
    """The checked rows of a batch to send.

    Args:
        dues_ms: None = `now_ms`, all of them.
        now_ms: also the start of `max_delay_ms`.

    Raises:
        BadRequest: names the field, the row, the limit and the value.
    """
    rows = len(payloads)
    if not 1 <= rows <= limits.BATCH_ROWS_MAX:
        raise BadRequest("rows of the batch", f"from 1 to {limits.BATCH_ROWS_MAX}", rows)
    sizes = list(map(len, payloads))
    byte_count, most = sum(sizes), max(sizes)
    allowed = min(topic.max_payload_bytes, limits.PAYLOAD_BYTES_MAX)
    if most > allowed:
        row = sizes.index(most)
        raise BadRequest(f"payload of row {row}", f"at most {allowed} bytes", most)
    if byte_count > limits.BATCH_BYTES_MAX:
        raise BadRequest("batch", f"at most {limits.BATCH_BYTES_MAX} bytes of texts", byte_count)
    if dues_ms is None:
        return SendRows(payloads, [now_ms] * rows, byte_count)
    low, high = min(dues_ms), max(dues_ms)
    if low < limits.INSTANT_MS_MIN or high > limits.INSTANT_MS_MAX:
        check_instants("due", np.array(dues_ms, dtype=np.int64))
    if topic.max_delay_ms and high > (last := now_ms + topic.max_delay_ms):
        row = next(row for row, due_ms in enumerate(dues_ms) if due_ms > last)
        raise BadRequest(f"due of row {row}", f"from 0 to {last}", dues_ms[row])
    return SendRows(payloads, dues_ms, byte_count)
