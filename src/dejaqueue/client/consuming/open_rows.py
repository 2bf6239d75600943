"""Deliveries of a consumer of which something is not settled yet, to be given back at its end.

Room: client; pure. Under the core's mutex.
Holds: nothing of a delivery's batch is kept alive: ids, attempts and due times are copies; what is
settled is forgotten before it is more than what is not.
See: consume_core.py, `close`; docs/adr/0090-a-consumer-that-closes-while-its-topic-moves.md.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.client.consuming.holding import Lease, Slice, rows_of

SPARE = 64
"""So many deliveries that are settled are kept at least: looking for them takes time, too."""
_Rows: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16], npt.NDArray[np.int64]]


class OpenRows:
    """Deliveries that were not settled as a whole.

    >>> rows = OpenRows()
    >>> rows.left() is None
    True
    """

    def __init__(self) -> None:
        self._deliveries: list[tuple[Lease, _Rows]] = []
        self._count_max = SPARE

    def __len__(self) -> int:
        return len(self._deliveries)

    def add(self, lease: Lease, batch: pa.RecordBatch) -> None:
        """Rows that came under this lease.

        Cost: three small copies, and now and then a look at all deliveries that are open.
        """
        ids, attempts, dues_ms = (
            batch.column(name).to_numpy().copy() for name in ("id", "attempts", "due")
        )
        self._deliveries.append((lease, (ids, attempts, dues_ms)))
        if len(self._deliveries) > self._count_max:
            self._deliveries = [one for one in self._deliveries if one[0].rows_open > 0]
            self._count_max = 2 * len(self._deliveries) + SPARE

    def left(self, *, before: int | None = None) -> Slice | None:
        """All rows of deliveries of which some are open; None = there are none. Those that are
        settled among them are nobody's any more, so that nobody minds if they are given back.

        Args:
            before: only what came by a stream before the one of this number; None = all.
        """
        found = [
            rows
            for lease, rows in self._deliveries
            if lease.rows_open > 0 and (before is None or lease.generation < before)
        ]
        if not found:
            return None
        ids, attempts, dues_ms = (np.concatenate(column) for column in zip(*found, strict=True))
        return rows_of(ids, attempts, dues_ms)
