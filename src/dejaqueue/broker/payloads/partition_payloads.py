"""PartitionPayloads: what a partition's messages have in the payload store, as it is delivered.

Room: broker. On the threads that send; what is said of the worker is called on it, or on its
committer.
Holds: a payload that is delivered is the one that was sent; a message whose payload cannot be read
now is let go, with a delay and without an attempt counted, and the ones beside it are delivered.
See: consumers/gathering.py, which calls it; payloads.py; rule 22.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.engine.arrays import Int64s, UInt16s
from dejaqueue.errors import DejaQError, ResourceExhausted, Unavailable
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import references
from dejaqueue.schema.messages import UNREAD
from dejaqueue.schema.references import Reference

log = logging.getLogger("dejaqueue.broker")

AWAY_MS: Final = 5_000
"""A message whose payload cannot be read as the store is away comes again so much later,"""
DAMAGED_MS: Final = 60_000
"""and one whose payload is missing or damaged: somebody may put it back."""
SEEN_MAX: Final = 100_000
"""Payloads of a partition that are known by their message's place, so that they are deleted when it
is done; others are found by the collector."""


@dataclass(frozen=True, slots=True)
class ReleasedRows:
    """Leased messages that are not delivered after all.

    Attributes:
        delay_ms: after which they are tried again, milliseconds.
        due_ms: when the last of them is due, UTC milliseconds: before that none may come.
    """

    subscription: str
    sequences: Int64s
    attempts: UInt16s
    delay_ms: int
    due_ms: int


ReleaseTo: TypeAlias = Callable[[ReleasedRows], None]
Found: TypeAlias = Reference | bytes | DejaQError
"""What a row has: what refers to its payload, or itself, or why that is not known."""
VOUCHER_BYTES: Final = 512
"""What a voucher takes in a delivery, at most about."""


class PartitionPayloads:
    """The payloads of one partition, as one view of it has them.

    Args:
        let_go: ends leases, on any thread; must not block.
        place: the topic and the partition, for the log.
        topic: its name, for vouchers.
        owner: as for Payloads.new_name.
    """

    def __init__(
        self, payloads: Payloads, let_go: ReleaseTo, place: str, topic: str = "", owner: str = ""
    ) -> None:
        self._payloads, self._let_go, self.place = payloads, let_go, place
        self._topic, self.owner = topic, owner
        self._subscription = ""
        self._guard = threading.Lock()
        self._seen: dict[int, str] = {}
        self.mean_bytes = 0
        """Mean of the payloads that were fetched; 0 = none was."""

    def seen_by(self, subscription: str) -> PartitionPayloads:
        """The same for a named subscription."""
        view = PartitionPayloads(self._payloads, self._let_go, self.place, self._topic, self.owner)
        view._subscription = subscription
        view._guard, view._seen = self._guard, self._seen
        return view

    # --- what is delivered ----------------------------------------------------------------------

    def note(self, column: pa.BinaryArray, locators: Int64s) -> None:
        """Remember where these payloads are, so that they are deleted with their messages.

        Args:
            column: stored payloads; null where a row is gone.
            locators: of its rows.
        """
        rows = references.marked_rows(column)
        if not rows.size:
            return
        found = {row: _decoded(column, row) for row in rows.tolist()}
        with self._guard:
            for row, reference in found.items():
                # A cold one has an object with others, which goes when nobody needs any of them.
                if isinstance(reference, Reference) and not reference.is_cold:
                    self._seen[int(locators[row])] = reference.name
            while len(self._seen) > SEEN_MAX:
                del self._seen[next(iter(self._seen))]

    def fetched(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A delivery with the payloads themselves; rows without are left out, and let go."""
        place = batch.schema.get_field_index("payload")
        column = batch.column(place)
        rows = references.marked_rows(column).tolist()
        if not rows:
            return batch
        found = {row: _decoded(column, row) for row in rows}
        self._tell_cold(found)
        late = self._beyond(column, found)
        outcomes = self._outcomes({row: one for row, one in found.items() if row not in late})
        changes = {row: one for row, one in outcomes.items() if isinstance(one, bytes)}
        failed = {row: one for row, one in outcomes.items() if isinstance(one, DejaQError)}
        arrays = list(batch.columns)
        arrays[place] = references.replaced(column, changes)
        whole = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        if not failed and not late:
            return whole
        self._give_up(batch, failed, late)
        stays = np.ones(batch.num_rows, dtype=np.bool_)
        stays[[*failed, *late]] = False
        return whole.filter(pa.array(stays))

    def _tell_cold(self, found: dict[int, Found]) -> None:
        """Say that payloads are not back in the journal though their messages go out."""
        count = sum(1 for one in found.values() if isinstance(one, Reference) and one.is_cold)
        if count:
            self._payloads.count(cold_late=count)
            text = "%s: payloads of %d messages were not back before they were due: read from there"
            log.warning(text, self.place, count)

    def _beyond(self, column: pa.BinaryArray, found: dict[int, Found]) -> list[int]:
        """Rows that are one delivery too many: together they would be too large."""
        sizes = references.payload_sizes(column)
        for row, one in found.items():
            if isinstance(one, Reference) and one.is_streamed:
                sizes[row] = VOUCHER_BYTES
        ends = sizes.astype(np.int64).cumsum()
        rows = list(found)
        self.mean_bytes = int(sizes[rows].mean())
        return [row for row in rows if row and ends[row] > limits.PAYLOAD_BYTES_MAX]

    def _outcomes(self, stored: dict[int, Found]) -> dict[int, bytes | DejaQError]:
        """Each payload, or a voucher for it, or why it cannot be read."""
        found = {row: self._voucher_of(one) for row, one in stored.items()}
        wanted = {row: one for row, one in found.items() if isinstance(one, Reference)}
        payloads = self._payloads.get_all(list(wanted.values()))
        fetched = dict(zip(wanted, payloads, strict=True))
        return {
            row: fetched[row] if isinstance(one, Reference) else one for row, one in found.items()
        }

    def _voucher_of(self, found: Found) -> Found:
        """What is delivered of a streamed payload; all else as it is."""
        seal = self._payloads.seal
        if seal is None or not isinstance(found, Reference) or not found.is_streamed:
            return found
        return seal.voucher(found, self._topic)

    def _give_up(
        self, batch: pa.RecordBatch, failed: dict[int, DejaQError], late: list[int]
    ) -> None:
        away, damaged = [], []
        ids = batch.column(batch.schema.get_field_index("id")).to_numpy()
        for row, error in failed.items():
            if isinstance(error, Unavailable | ResourceExhausted):
                away.append(row)
                continue
            damaged.append(row)
            text = "%s: message %d is not delivered: %s; it is tried again in a minute"
            log.error(text, self.place, ids[row], error)
        if away:
            error = failed[away[0]]
            text = "%s: %d messages wait for the payload store: %s"
            log.warning(text, self.place, len(away), error)
        attempts = batch.column(batch.schema.get_field_index("attempts")).to_numpy()
        dues_ms = batch.column(batch.schema.get_field_index("due")).to_numpy()
        for rows, delay_ms in ((late, 0), (away, AWAY_MS), (damaged, DAMAGED_MS)):
            if rows:
                which = ids[rows] & limits.SEQUENCE_MAX, attempts[rows]
                due_ms = int(dues_ms[rows].max())
                self._let_go(ReleasedRows(self._subscription, *which, delay_ms, due_ms))

    # --- what is looked at ----------------------------------------------------------------------

    def read(self, column: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, DejaQError]]:
        """Stored payloads as they were sent, for whoever looks at them and waits.

        Returns:
            The payloads; and by row why one cannot be read, which stays as it is stored.
        """
        rows = references.marked_rows(column).tolist()
        if not rows:
            return column, {}
        outcomes = self._outcomes({row: _decoded(column, row) for row in rows})
        changes = {row: one for row, one in outcomes.items() if isinstance(one, bytes)}
        failed = {row: one for row, one in outcomes.items() if isinstance(one, DejaQError)}
        return references.replaced(column, changes), failed

    def shown(self, page: pa.RecordBatch) -> pa.RecordBatch:
        """A page of stored messages with their payloads as they were sent; a row whose payload
        cannot be read has none, and the column UNREAD says why. It may say so of others already."""
        place = page.schema.get_field_index("payload")
        stored = page.column(place)
        column, failed = self.read(stored)
        if column is stored and not failed:
            return page
        if not failed:
            return page.set_column(place, page.schema.field(place), column)
        reasons: list[str | None] = [None] * page.num_rows
        if UNREAD.name in page.schema.names:
            reasons = page.column(UNREAD.name).to_pylist()
            page = page.drop_columns([UNREAD.name])
        for row, error in failed.items():
            reasons[row] = error.told()
        told = pa.array(reasons, UNREAD.type)
        # Null where there is a reason.
        column = pc.if_else(told.is_valid(), pa.scalar(None, column.type), column)
        found = page.set_column(place, pa.field("payload", column.type), column)
        return found.append_column(UNREAD, told)

    # --- what is done, on the worker or its committer -------------------------------------------

    def ended(self, locators: Int64s) -> None:
        """These messages are done everywhere, durably: what they had in the store may go."""
        seen = self._seen
        if not seen:
            return
        with self._guard:
            if locators.size <= len(seen):
                gone = [locator for locator in locators.tolist() if locator in seen]
            else:
                known = np.fromiter(seen, dtype=np.int64, count=len(seen))
                gone = known[np.isin(known, locators)].tolist()
            names = [seen.pop(locator) for locator in gone]
        if names:
            self._payloads.doom(names)


def _decoded(column: pa.BinaryArray, row: int) -> Found:
    try:
        return references.decode(column[row].as_py())
    except DejaQError as damage:
        return damage
