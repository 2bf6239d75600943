"""FollowedRows: reads what is stored of rows that compaction may copy forward meanwhile.

Who answers a call asks the worker which rows there are, and reads them afterwards, some much later
if the reader is slow. By then compaction may have copied them, and their segment may be gone: what
is read of such a row is nothing, as of one that is done.

Room: broker. On the threads that answer, not on the workers.
Holds: a row of which nothing is stored where it was is done; one that is not is read where it is
now.
See: calls/scan.py and calls/peek.py, which read so; gathering.py, for rows that are leased, whose
copies are told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from dejaqueue.broker.consumers.row_reader import RowReader
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import Unavailable
from dejaqueue.journal.interface import TEXT_COLUMNS

TRIES_MAX: Final = 100
"""A row that was copied again, and its segment dropped, so often while it was read."""


class FollowedRows:
    """The journal, for some rows.

    Args:
        sequences, locators: of the rows, as the worker said.
        find: asks the worker where rows are stored now, by their sequences; -1 = they are done.

    Attributes:
        place: topic and partition, for people.
    """

    def __init__(
        self,
        journal: RowReader,
        sequences: Int64s,
        locators: Int64s,
        find: Callable[[Int64s], Int64s],
    ) -> None:
        self.place = journal.place
        self._journal, self._find = journal, find
        self._sequences, self._locators = sequences, locators

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read.

        Args:
            locators: some of those of the rows.

        Raises:
            Unavailable: rows are copied again and again, quicker than they are read.
        """
        found = self._journal.read(locators, columns)
        # A row has a payload; of its other columns any may be null.
        if not all(column.null_count for column in found.columns):
            return found
        wanted = [*columns] if "payload" in columns else [*columns, "payload"]
        if len(wanted) > len(columns):
            found = self._journal.read(locators, wanted)
        rows = _unread(found, wanted)
        for _ in range(TRIES_MAX):
            now = self._find(self._sequences_at(locators[rows])) if rows.size else rows
            rows, now = rows[now >= 0], now[now >= 0]
            if not rows.size:
                return found.select(columns)
            again = self._journal.read(now, wanted)
            found = _replaced(found, rows, again)
            rows = rows[_unread(again, wanted)]
        raise Unavailable(f"{self.place}: rows are copied quicker than they are read", 1_000)

    def _sequences_at(self, locators: Int64s) -> Int64s:
        order = self._locators.argsort(kind="stable")
        places = order[np.searchsorted(self._locators, locators, sorter=order)]
        sequences: Int64s = self._sequences[places]
        return sequences


def _unread(batch: pa.RecordBatch, columns: Sequence[str]) -> Int64s:
    """Which rows have nothing that is stored."""
    payloads = batch.column(list(columns).index("payload"))
    rows: Int64s = np.flatnonzero(payloads.is_null().to_numpy(zero_copy_only=False))
    return rows


def _replaced(batch: pa.RecordBatch, rows: Int64s, others: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with other rows in place of these."""
    places = np.arange(batch.num_rows)
    places[rows] = batch.num_rows + np.arange(len(rows))
    taken = pa.array(places)
    pairs = zip(batch.columns, others.columns, strict=True)
    arrays = [pa.concat_arrays(pair).take(taken) for pair in pairs]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
