"""Stored rows for the worker, which does not wait for a server to get them.

Room: broker. On the partition's worker alone; what a server has to be asked for, another thread
reads.
Holds: rows that are applied and not durable yet are as they will be stored; a journal that hangs
holds who asks for its rows, and no other partition of the worker.
See: partition/taking.py, which does later what has to wait; journal/interface.py, `read_here`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.consumers.gathering import columns_of
from dejaqueue.broker.shard.commit import Commits
from dejaqueue.engine.arrays import Int64s, distinct
from dejaqueue.journal.interface import TEXT_COLUMNS, Journal


class RowsAwaited(Exception):
    """A server is asked for rows. Who needs them changes nothing, and asks again when the partition
    is rung."""


class _Reading(NamedTuple):
    """What a server is asked for: ascending locators, and what it gave."""

    locators: Int64s
    columns: Sequence[str]
    rows: Future[pa.RecordBatch]


class StoredRows:
    """The rows of one partition, as they were sent.

    Args:
        ring: has the partition stepped; any thread may call it.

    Attributes:
        waits: it is not the worker who asks, but a thread that may wait for the server.
    """

    def __init__(self, journal: Journal, commits: Commits, ring: Callable[[], None]) -> None:
        self._journal, self._commits, self._ring = journal, commits, ring
        self._readings: list[_Reading] = []
        self.waits = False

    @property
    def place(self) -> str:
        """Topic and partition, for people."""
        return self._journal.place

    @property
    def is_awaited(self) -> bool:
        """True while the server has not answered: it is of no use to ask again."""
        return bool(self._readings) and not self._readings[-1].rows.done() and not self.waits

    def forget(self) -> None:
        """Nobody needs again what the server was asked for."""
        self._readings.clear()

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """As `Journal.read`, of live rows; those that are not durable are among them.

        Raises:
            RowsAwaited: not yet. What `Journal.read` raises.
        """
        positions = locators >> limits.ROW_BITS
        parts, places, is_read = [], [], np.ones(len(locators), dtype=np.bool_)
        for position in np.unique(positions[positions > self._commits.tail]).tolist():
            entry = self._commits.entry_at(position)
            if entry is None:  # it has been appended by now
                continue
            mask = positions == position
            rows = locators[mask] & (limits.BATCH_ROWS_MAX - 1)
            parts.append(columns_of(entry, columns, 0, entry.rows).take(pa.array(rows)))
            places.append(np.flatnonzero(mask))
            is_read &= ~mask
        if not parts:
            return self._durable(locators, columns)
        if is_read.any():
            parts.append(self._durable(locators[is_read], columns))
            places.append(np.flatnonzero(is_read))
        order = pa.array(np.argsort(np.concatenate(places)))
        both = pa.Table.from_batches(parts).combine_chunks().take(order)
        return both.combine_chunks().to_batches(max_chunksize=None)[0]

    def _durable(self, locators: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        executor = self._commits.executor
        if executor is None or self.waits:
            return self._journal.read(locators, columns)
        stored = self._journal.read_here(locators, columns)
        if stored is not None:
            return stored
        if self.is_awaited:
            raise RowsAwaited
        for reading in self._readings:
            places = np.minimum(reading.locators.searchsorted(locators), reading.locators.size - 1)
            if reading.columns == columns and (reading.locators[places] == locators).all():
                # A failure, too, is for all who ask in this turn: they find out who has to wait.
                return reading.rows.result().take(pa.array(places))
        # All of them, not what is missing here: by then the copy here may have lost others.
        asked = distinct(locators)
        rows = executor.submit(self._journal.read, asked, columns)
        self._readings.append(_Reading(asked, columns, rows))
        rows.add_done_callback(lambda _: self._ring())
        raise RowsAwaited
