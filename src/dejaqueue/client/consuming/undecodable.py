"""Rows of a delivery whose texts are not UTF-8: the client refuses them itself, and goes on.

Room: client; pure.
Holds: the rows beside a bad one are handed over as ever; a bad one is nacked with the reason, as if
an application had failed on it, so that it becomes a dead letter after its attempts.
See: schema/texts.py; consume_core.py. Rule 15.

A broker mends what it has stored, so these come from one of an earlier version. No consumer can
read such a row, and each would get it again at once: so it waits longer from attempt to attempt,
also where the topic has no backoff.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.client.consuming.holding import Slice, rows_of
from dejaqueue.errors import BadRequest
from dejaqueue.schema import texts
from dejaqueue.wire.frames import DeliveryHead

DELAY_MS = 1_000
"""After the first attempt; twice as long after each further one."""
DOUBLINGS_MAX = 6


def refusal(name: str) -> BadRequest:
    """What is wrong with a row."""
    return BadRequest(f"{name} of the message", "text in UTF-8", "other bytes")


def sort_out(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[str, Slice]]]:
    """The rows that can be read, and the others by the reason, to be settled by id and attempt.

    Args:
        batch: of schema DELIVERY.
    """
    bad = np.zeros(batch.num_rows, dtype=np.bool_)
    refused = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        mask = texts.bad_rows(pa.RecordBatch.from_arrays([column], [name]))
        if mask is None or not (mask & ~bad).any():
            continue
        rows = batch.filter(pa.array(mask & ~bad))
        ids, dues_ms, attempts = (rows.column(n).to_numpy() for n in ("id", "due", "attempts"))
        refused.append((str(refusal(name)), rows_of(ids, attempts, dues_ms)))
        bad |= mask
    return (batch.filter(pa.array(~bad)) if refused else batch), refused


def delay_ms(rows: Slice, head: DeliveryHead) -> int:
    """How long refused rows wait; never until before they are due."""
    doublings = min(int(rows.attempts.max()) - 1, DOUBLINGS_MAX)
    early_ms = int(rows.dues_ms.max()) - head.broker_us // 1_000
    return int(max(DELAY_MS << max(doublings, 0), early_ms))
