"""Cold payloads: what is due much later leaves the journal, and is back before it is due.

The rows of messages that are due later than the topic's `cold_after_ms` are copied forward, as
compaction does it, but with references in place of their payloads, which are one object in the
payload store. Some time before the first of them is due, the object is read, and the rows are
copied once more, with the payloads. So the journal's own way of giving segments back makes the
room, and whoever reads a row in between finds a reference as of any large payload.

    after / 8    so often objects are looked at, and at once when messages were moved
    after / 2    before the first message of an object is due, it is read
    after · 3/4  what is due by then comes back with it; later ones go on being cold

Room: broker. Runs on the partition's worker; the store is asked beside it.
Holds: an object was read back before a row refers to it; the rows with the payloads are freed when
the references are durable, and an object goes when no row refers to it; a partition that is read
again finds what is cold in its journal.
See: cold_index.py; payloads/cold_objects.py; maintenance.py, `relocate_rows`; docs/adr/0085.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.payloads.cold_objects import ColdObjects
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.cold_index import ColdIndex, ColdObject, needed_ms
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.maintenance import relocate_rows
from dejaqueue.broker.shard.stored_rows import RowsAwaited, StoredRows
from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.journal.interface import TEXT_COLUMNS
from dejaqueue.schema.cold_references import cold_rows, payload_column, reference_column
from dejaqueue.schema.references import Reference, marked_rows
from dejaqueue.schema.text_columns import text_offsets

log = logging.getLogger("dejaqueue.broker")

OBJECT_BYTES: Final = 4 << 20
"""Payloads of an object, at least: an object store takes about as long for one of them as for one
of a KiB, and of less than that the journal gives nothing back."""
OBJECT_ROWS_MAX: Final = 4_096
PAYLOAD_BYTES_MIN: Final = 512
"""A reference has some 170 bytes: smaller payloads stay."""
CONTENT_BYTES_MIN: Final = 64 << 10
"""Where most payloads are small, it may be that few of them go; then all stay."""
SORT_BYTES: Final = 64 << 20
"""Of so much together it is chosen, by due time, what shares an object: it comes back together."""
QUIET_US: Final = 1_000_000
"""When nothing came for so long, what there is is enough."""
LOOK_BYTES: Final = 2 << 20
"""Payloads that are read in one look, about,"""
LOOK_ROWS_MAX: Final = 16_384
"""and messages that one is about."""
PIECE_BYTES: Final = 1 << 20
"""Payloads that come back in one step: about a millisecond of work, which due messages can wait."""
PUTS_MAX, GETS_MAX = 2, 4
"""Of one partition at once."""
RETRY_US: Final = 5_000_000
MOVED_US: Final = 1_000_000
"""Messages were moved: objects are looked at so long after the last time."""
BUSY_US: Final = 100_000
"""They are looked at so often while some wait to be read."""
SWEEP_ROWS: Final = 65_536
"""Messages of objects that are looked at in one step."""


class _OutgoingObject(NamedTuple):
    """An object that is being stored; rows in the order in which they are in it."""

    future: Future[Reference]
    sequences: Int64s
    offsets: Int64s
    sizes: Int64s


@dataclass(slots=True)
class _ReturningObject:
    """An object that was read.

    Attributes:
        sequences: what is to come back yet, the first that is due first.
    """

    whole: Reference
    content: bytes
    sequences: Int64s


class ColdChore(Chore):
    """Watches over what of a partition is cold."""

    def __init__(self, cold: ColdObjects) -> None:
        self._cold = cold
        self._forget()

    def _forget(self) -> None:
        self._next = 0
        """No message below this sequence is to be looked at."""
        self._pass_end = 0
        """Those below this one were there when the partition was read: some may be cold."""
        self._look_rows = 64
        self._waiting: list[tuple[Int64s, Int64s, Int64s]] = []
        self._waiting_bytes = 0
        self._came_us = self._retry_us = self._sent_us = self._sent = 0
        self._planned: deque[Int64s] = deque()
        self._puts: list[_OutgoingObject] = []
        self._gets: dict[str, Future[bytes]] = {}
        self._unread_us: dict[str, int] = {}
        """Of objects that could not be read: when to try again."""
        self._returns: deque[_ReturningObject] = deque()
        self._sweep: deque[ColdObject] = deque()
        self._next_sweep_us = self._swept_us = 0
        self._moved = 0
        self._told = False

    def loaded(self, core: PartitionCore) -> None:
        """What is cold is found anew; objects that are being stored have no row."""
        for put in self._puts:
            put.future.add_done_callback(self._end_orphan)
        self._forget()
        core.cold = ColdIndex()
        self._pass_end = core.engine.next_sequence
        self._stored = StoredRows(core.journal, core.commits, core.ring)

    def _end_orphan(self, future: Future[Reference]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._cold.end([future.result().name])

    def configured(self, core: PartitionCore) -> None:
        """What comes back, and when, may be others."""
        self._next_sweep_us = 0

    def _is_on(self, core: PartitionCore) -> bool:
        if core.topic().cold_after_ms or core.cold.is_wanted or core.cold.objects:
            return self._cold.is_open and core.payloads is not None
        return False

    # --- in a step ------------------------------------------------------------------------------

    def step(self, core: PartitionCore) -> None:
        """Have a piece come back, or go."""
        if not self._is_on(core):
            return
        try:
            if self._returns:
                self._return_some(core)
            else:
                self._end_put(core)
        except RowsAwaited:
            return  # it is rung when they are there
        self._end_gets(core)
        self._look_at_objects(core)

    def after_append(self, core: PartitionCore, *, is_idle: bool) -> bool:
        """While nobody waits, look for what may go."""
        if not self._is_on(core):
            return False
        has_more = bool(self._sweep)
        if not self._stored.is_awaited:
            has_more |= bool(self._returns) or any(put.future.done() for put in self._puts)
        if not is_idle:
            return has_more
        try:
            return self._look(core) or self._put_next(core) or has_more
        except RowsAwaited:
            return has_more

    def next_us(self, core: PartitionCore) -> int | None:
        """When objects are to be looked at, or what came is enough for one; None = neither."""
        if not self._is_on(core):
            return None
        wakes_us = [self._next_sweep_us] if core.cold.objects else []
        if self._planned and not self._puts:
            wakes_us.append(max(self._retry_us, core.clock.now_us() + 1_000))
        elif self._waiting_bytes >= OBJECT_BYTES:
            wakes_us.append(self._came_us + QUIET_US)
        return min(wakes_us, default=None)

    # --- what goes ------------------------------------------------------------------------------

    def _look(self, core: PartitionCore) -> bool:
        """Look at some messages that were not looked at yet; True if there are more."""
        views, after_ms = core.views, core.topic().cold_after_ms
        first = min(engine.live_from(self._next) for engine in views.holders())
        end = views.unnamed.next_sequence
        if first < self._pass_end:
            end = self._pass_end
        elif not after_ms:
            self._next, core.cold.is_complete = end, True
            return False
        last = min(first + self._look_rows, end)
        if last <= first:
            self._next = first
            core.cold.is_complete |= first >= self._pass_end
            return False
        sequences = np.arange(first, last, dtype=np.int64)
        needs_ms = needed_ms(views, sequences)
        is_far = (needs_ms > core.now_ms() + after_ms) & (needs_ms <= limits.INSTANT_MS_MAX)
        if first < self._pass_end:
            self._find(core, sequences, needs_ms, is_far & bool(after_ms))
        else:  # their payloads are looked at when they go
            mean_bytes = max(1, core.mean_payload_bytes)
            sizes = np.full(np.count_nonzero(is_far), mean_bytes, dtype=np.int64)
            self._wait(core, sequences[is_far], needs_ms[is_far], sizes)
            self._look_rows = LOOK_ROWS_MAX
        self._next = last
        if last >= self._pass_end and not core.cold.is_complete:
            core.cold.is_complete, self._next_sweep_us = True, 0
        return last < views.unnamed.next_sequence

    def _find(self, core: PartitionCore, sequences: Int64s, needs_ms: Int64s, is_far: Mask) -> None:
        """Of what was there when the partition was read, see what is cold and what may be."""
        locators = core.views.locators(sequences)
        rows = np.flatnonzero(locators >= 0)
        if not rows.size:
            return
        column = self._stored.read(locators[rows], ("payload",)).column(0)
        self._stored.forget()
        for found in cold_rows(column):
            core.cold.add(found.whole, sequences[rows[found.rows]])
        sizes = np.diff(text_offsets(column)).astype(np.int64)
        goes = is_far[rows] & (sizes >= PAYLOAD_BYTES_MIN)
        goes[marked_rows(column)] = False
        self._wait(core, sequences[rows[goes]], needs_ms[rows[goes]], sizes[goes])
        # Few at first: they may be large.
        mean_bytes = max(1, int(sizes.sum()) // rows.size)
        self._look_rows = max(16, min(LOOK_BYTES // mean_bytes, 4 * self._look_rows, LOOK_ROWS_MAX))

    def _wait(
        self, core: PartitionCore, sequences: Int64s, needs_ms: Int64s, sizes: Int64s
    ) -> None:
        """Wait with what may go, until it is enough."""
        if not sequences.size:
            return
        self._waiting.append((sequences, needs_ms, sizes))
        self._waiting_bytes += int(sizes.sum())
        self._came_us = core.clock.now_us()
        if self._waiting_bytes >= SORT_BYTES:
            self._plan()

    def _plan(self) -> None:
        """What waits is for objects of about one size, by due time."""
        sequences, needs_ms, sizes = (
            np.concatenate([some[place] for some in self._waiting]) for place in range(3)
        )
        self._waiting, self._waiting_bytes = [], 0
        order = needs_ms.argsort(kind="stable")
        ends = sizes[order].cumsum()
        count = max(1, int(ends[-1]) // OBJECT_BYTES, -(-order.size // OBJECT_ROWS_MAX))
        shares = np.arange(1, count) * int(ends[-1]) // count
        bounds = ends.searchsorted(shares, side="right")
        self._planned.extend(part for part in np.split(sequences[order], bounds) if part.size)

    def _put_next(self, core: PartitionCore) -> bool:
        """Begin to store an object; True if the next one can be, too."""
        now_us = core.clock.now_us()
        if self._waiting_bytes >= OBJECT_BYTES and now_us >= self._came_us + QUIET_US:
            self._plan()
        if not self._planned or len(self._puts) >= PUTS_MAX or now_us < self._retry_us:
            return False
        if self._is_busy(core, now_us) and not self._cold.takes_turn(now_us):
            self._retry_us = now_us + BUSY_US
            return False
        sequences = self._planned[0]
        sequences = sequences[self._stays(core, sequences)]
        if not sequences.size:
            self._planned.popleft()
            return True
        column = self._stored.read(core.views.locators(sequences), ("payload",)).column(0)
        self._stored.forget()
        goes = np.diff(text_offsets(column)) >= PAYLOAD_BYTES_MIN
        goes[marked_rows(column)] = False
        if not goes.all():
            sequences, column = sequences[goes], column.filter(pa.array(goes))
        bounds = text_offsets(column).astype(np.int64)
        if bounds[-1] - bounds[0] < CONTENT_BYTES_MIN:
            self._planned.popleft()
            return True
        # As bytes without sign, which is what the library that encrypts takes.
        content = memoryview(column.buffers()[2]).cast("B")[int(bounds[0]) : int(bounds[-1])]
        assert core.payloads is not None, "it is on"
        try:
            future = self._cold.put(core.payloads.owner, content)
        except Unavailable:  # the broker stops
            self._retry_us = now_us + RETRY_US
            return False
        if future is None:
            self._retry_us = now_us + MOVED_US
            return False
        self._planned.popleft()
        offsets = bounds[:-1] - bounds[0]
        self._puts.append(_OutgoingObject(future, sequences, offsets, np.diff(bounds)))
        future.add_done_callback(lambda _: core.ring())
        return bool(self._planned)

    def _is_busy(self, core: PartitionCore, now_us: int) -> bool:
        """Whether messages came a moment ago. A full disk is worse than a slow producer."""
        sent = core.views.unnamed.next_sequence
        if sent != self._sent:
            self._sent, self._sent_us = sent, now_us
        return now_us < self._sent_us + QUIET_US and not core.lacks_room

    def _stays(self, core: PartitionCore, sequences: Int64s) -> Mask:
        """Which of these are there, and late enough to be cold yet."""
        needs_ms = needed_ms(core.views, sequences)
        far_ms = core.now_ms() + core.topic().cold_after_ms * 3 // 4
        is_far = (needs_ms > far_ms) & (needs_ms <= limits.INSTANT_MS_MAX)
        return is_far & (core.views.locators(sequences) >= 0)

    def _end_put(self, core: PartitionCore) -> None:
        """Write references to an object that is stored."""
        put = next((one for one in self._puts if one.future.done()), None)
        if put is None:
            return
        try:
            whole = put.future.result()
        except CancelledError:
            self._puts.remove(put)
            return
        except DejaQError as failure:
            self._puts.remove(put)
            self._planned.appendleft(put.sequences)
            self._retry_us = core.clock.now_us() + RETRY_US
            log.warning("%s: payloads stay in the journal for now: %s", _place(core), failure)
            return
        stays = self._stays(core, put.sequences)
        sequences = put.sequences[stays]
        if not sequences.size or not core.topic().cold_after_ms:
            self._puts.remove(put)
            self._cold.end([whole.name])
            return
        locators = core.views.locators(sequences)
        batch = self._stored.read(locators, TEXT_COLUMNS)
        self._stored.forget()
        self._puts.remove(put)
        core.journal.shed(locators >> limits.ROW_BITS, put.sizes[stays])
        column = reference_column(whole, put.offsets[stays], put.sizes[stays])
        core.cold.add(whole, sequences)
        relocate_rows(core, sequences, _with_payloads(batch, column))
        self._cold.count(cold_stored=sequences.size)

    # --- what comes back ------------------------------------------------------------------------

    def _look_at_objects(self, core: PartitionCore) -> None:
        """Have objects read whose messages are due soon, and let go of those without any."""
        now_us, index = core.clock.now_us(), core.cold
        moved = sum(engine.counts.moved for engine in core.views.engines())
        is_moved = moved != self._moved and now_us >= self._swept_us + MOVED_US
        index.called &= index.objects.keys()
        if index.called:
            self._next_sweep_us = min(self._next_sweep_us, self._swept_us + BUSY_US)
        if not self._sweep and (now_us >= self._next_sweep_us or is_moved) and index.objects:
            self._sweep.extend(index.objects.values())
            self._moved, self._swept_us = moved, now_us
            after_us = core.topic().cold_after_ms * 1_000
            self._next_sweep_us = now_us + max(after_us // 8, BUSY_US)
        rows_left = SWEEP_ROWS
        while self._sweep and rows_left > 0:
            one = self._sweep[0]
            rows_left -= one.sequences.size
            if not self._look_at(core, one):
                # Too many are being read: it rings.
                self._next_sweep_us = min(self._next_sweep_us, now_us + BUSY_US)
                self._sweep.clear()
                return
            self._sweep.popleft()

    def _look_at(self, core: PartitionCore, one: ColdObject) -> bool:
        """Look at an object; False: it is to be read, and cannot be now."""
        index, name = core.cold, one.whole.name
        if name in self._gets or name not in index.objects:
            return True
        if self._unread_us.get(name, 0) > core.clock.now_us():  # others are not to wait for it
            return True
        one.sequences = one.sequences[core.views.locators(one.sequences) >= 0]
        if not one.sequences.size:
            self._unread_us.pop(name, None)
            if index.is_complete:  # else some of its rows may not have been seen yet
                del index.objects[name]
                index.called.discard(name)
                self._cold.end([name])
            return True
        first_ms = int(needed_ms(core.views, one.sequences).min())
        after_ms = core.topic().cold_after_ms
        is_due = first_ms <= core.now_ms() + after_ms // 2 or not after_ms or name in index.called
        if not is_due or any(back.whole.name == name for back in self._returns):
            return True
        if len(self._gets) + len(self._returns) >= GETS_MAX:
            return False
        try:
            future = self._cold.get(one.whole)
        except Unavailable:  # the broker stops
            return True
        if future is None:
            return False
        self._gets[name] = future
        future.add_done_callback(lambda _: core.ring())
        return True

    def _end_gets(self, core: PartitionCore) -> None:
        """Take what was read."""
        for name in [name for name, future in self._gets.items() if future.done()]:
            future, one = self._gets.pop(name), core.cold.objects.get(name)
            try:
                content = future.result()
            except CancelledError:
                continue
            except DejaQError as failure:
                self._unread_us[name] = core.clock.now_us() + RETRY_US
                self._next_sweep_us = min(self._next_sweep_us, self._unread_us[name])
                self._tell(core, failure)
                continue
            self._unread_us.pop(name, None)
            self._told = False
            self._next_sweep_us = min(self._next_sweep_us, core.clock.now_us())  # for the next one
            if one is not None:
                sequences = self._due_soon(core, one)
                self._returns.append(_ReturningObject(one.whole, content, sequences))

    def _tell(self, core: PartitionCore, failure: DejaQError) -> None:
        """Say once that what is due soon cannot be read."""
        if not self._told:
            self._told = True
            text = "%s: payloads of messages that are due soon cannot be read: %s; tried again"
            log.warning(text, _place(core), failure)

    def _due_soon(self, core: PartitionCore, one: ColdObject) -> Int64s:
        """What of an object comes back now, the first that is due first."""
        needs_ms = needed_ms(core.views, one.sequences)
        order = needs_ms.argsort(kind="stable")
        after_ms = core.topic().cold_after_ms
        if not after_ms or one.whole.name in core.cold.called:
            return one.sequences[order]
        count = int(np.count_nonzero(needs_ms <= core.now_ms() + after_ms * 3 // 4))
        return one.sequences[order[:count]]

    def _return_some(self, core: PartitionCore) -> None:
        """Write some rows again, with their payloads."""
        back = self._returns[0]
        one = core.cold.objects.get(back.whole.name)
        mean_bytes = max(1, back.whole.byte_count // max(1, back.sequences.size))
        rows = max(16, PIECE_BYTES // mean_bytes)
        sequences, left = back.sequences[:rows], back.sequences[rows:]
        there = sequences[core.views.locators(sequences) >= 0]
        if there.size:
            batch = self._stored.read(core.views.locators(there), TEXT_COLUMNS)
            self._stored.forget()
            column = batch.column(TEXT_COLUMNS.index("payload"))
            for found in cold_rows(column):
                if found.whole == back.whole:
                    payloads = payload_column(back.content, found.offsets, found.sizes)
                    own = batch.take(pa.array(found.rows))
                    relocate_rows(core, there[found.rows], _with_payloads(own, payloads))
                    self._cold.count(cold_returned=found.rows.size)
        back.sequences = left
        if one is not None:
            one.sequences = np.setdiff1d(one.sequences, sequences)
        if not left.size:
            self._returns.popleft()
            self._next_sweep_us = core.clock.now_us()

    def closed(self) -> None:
        """What is being stored has no row: it is found later, and goes."""
        self._puts.clear()
        self._gets.clear()


def _with_payloads(batch: pa.RecordBatch, payloads: pa.BinaryArray) -> pa.RecordBatch:
    """Stored rows with other payloads."""
    place = TEXT_COLUMNS.index("payload")
    return batch.set_column(place, batch.schema.field(place), payloads)


def _place(core: PartitionCore) -> str:
    assert core.payloads is not None, "it is on"
    return core.payloads.place
