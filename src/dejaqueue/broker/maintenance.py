"""Snapshots and compaction of a partition: small steps between the steps that serve.

Room: broker. Runs on the worker's thread; only the writing of snapshot files is left to another
one.
Holds: the journal is truncated only up to a snapshot that is durable; rows are freed only after
their copies are.
See: docs/guides/sizing.md; journal/interface.py duties 7 and 10.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING

import numpy as np

from dejaqueue import limits
from dejaqueue.broker import entries, news
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import OpenEpoch, Relocate
from dejaqueue.engine.snapshot import (
    SnapshotPlan,
    abandon_snapshot,
    begin_snapshot,
    plan_snapshot,
)
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import TEXT_COLUMNS, SnapshotFile
from dejaqueue.model import MessageState

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.room import Room

# Rows copied forward in one step: about a millisecond of work.
COPY_ROWS_MAX = 4_096
# Slabs of the message table that are copied for a snapshot in one step: about two milliseconds.
COPY_SLABS = 4
# While producers are refused for lack of room, a snapshot this often: it lets segments go.
ROOM_INTERVAL_MS = 1_000
# Snapshots until what was done before the first of them is gone: the journal keeps two.
ROOM_SNAPSHOTS = 2
# Entries between two looks for storage that is worth compacting.
COMPACT_ENTRIES = 2_000


class Maintenance:
    """What one partition needs now and then.

    Args:
        writer: writes snapshot files, so that the worker goes on serving.
        room: asks the other partitions for room as well.
    """

    def __init__(self, writer: Executor, room: Room | None = None) -> None:
        self._writer = writer
        self._room = room
        self._room_wanted = 0 if room is None else room.wanted_count
        self._snapshot_position = 0
        self._snapshot_ms = 0
        self._compacted_position = 0
        self._loads = 0
        self._plan: SnapshotPlan | None = None
        self._write: Future[None] | None = None
        self._written: int | DejaQError | None = None
        self._room_snapshots = 0
        self._to_copy: Int64s = np.zeros(0, dtype=np.int64)
        self.snapshot_count = 0
        self.copied_rows = 0

    def loaded(self, partition: Partition, snapshot_position: int) -> None:
        """The partition was read again: what was planned before is void."""
        self._snapshot_position = snapshot_position
        self._snapshot_ms = partition.clock.now_ms()
        self._compacted_position = partition.position
        self._loads += 1
        self._to_copy = self._to_copy[:0]
        self._plan = self._write = self._written = None
        if partition.journal.holds_room:
            self._room_snapshots = ROOM_SNAPSHOTS

    def want_room(self) -> None:
        """A producer was refused because the disk is full: soon give back what room there is."""
        self._room_snapshots = ROOM_SNAPSHOTS
        if self._room is not None:
            self._room.want()

    def _hear(self, partition: Partition) -> None:
        """Another partition's producer may have been refused."""
        if self._room is None or self._room.wanted_count == self._room_wanted:
            return
        self._room_wanted = self._room.wanted_count
        if partition.journal.holds_room:
            self._room_snapshots = ROOM_SNAPSHOTS

    def next_ms(self, partition: Partition) -> int | None:
        """When to be called though nothing happens; None = no need."""
        if self.busy:
            return None
        if self._room_snapshots:
            return self._snapshot_ms + ROOM_INTERVAL_MS
        interval_ms = partition.settings.journal.snapshot_interval_ms
        if interval_ms and (self.entry_count(partition) or partition.journal.holds_room):
            return self._snapshot_ms + interval_ms
        return None

    def _is_snapshot_wanted(self, partition: Partition) -> bool:
        settings = partition.settings.journal
        entry_count = partition.position - self._snapshot_position
        age_ms = partition.clock.now_ms() - self._snapshot_ms
        if self._room_snapshots and age_ms >= ROOM_INTERVAL_MS:
            return True
        if settings.snapshot_entries and entry_count >= settings.snapshot_entries:
            return True
        by_time = settings.snapshot_interval_ms and age_ms >= settings.snapshot_interval_ms
        return bool(by_time and (entry_count > 0 or partition.journal.holds_room))

    def _prepare_snapshot(self, partition: Partition) -> None:
        if self._room_snapshots:
            self._room_snapshots -= 1
            self._move_on(partition)
        elif partition.position == self._snapshot_position:
            self._move_on(partition)

    def _move_on(self, partition: Partition) -> None:
        """Before a snapshot for the sake of room."""
        if partition.idle:
            partition.journal.turn_over()
        if partition.position == self._snapshot_position:
            # The journal lets go of what lies before the older of two snapshots: have two.
            partition.apply(OpenEpoch(partition.now_ms(), partition.engine.epoch))

    def step(self, partition: Partition) -> bool:
        """Do a little if it is time; True = there is more to do soon."""
        if self._written is not None and partition.settles():
            self._finish_snapshot(partition)
        self._hear(partition)
        if not self.busy and self._is_snapshot_wanted(partition) and partition.settles():
            self._prepare_snapshot(partition)
            self.begin_snapshot(partition)
        self._copy_some(partition)
        if self._plan is not None:
            return True
        return self._compact(partition)

    def begin_snapshot(self, partition: Partition) -> None:
        """Hold the state as it is now; it is copied in the next steps, then made durable."""
        partition.commits.commit_all()  # the engine must not be ahead of what is durable
        self._snapshot_position = partition.position
        self._snapshot_ms = partition.clock.now_ms()
        self._plan = begin_snapshot(partition.engine)

    def _copy_some(self, partition: Partition, slab_count: int | None = COPY_SLABS) -> None:
        """Copy a little of the state; when all is copied, another thread makes it durable."""
        plan = self._plan
        if plan is None or not plan.copy_some(slab_count):
            return
        self._plan = None
        files = [SnapshotFile(name, content) for name, content in plan.files()]
        journal, position, load_number = partition.journal, self._snapshot_position, self._loads

        def write() -> None:
            written: int | DejaQError = position
            began_us = partition.clock.now_us()
            try:
                _settle_history(partition)
                journal.put_snapshot(position, plan.meta, files)
                partition.counting.topic.snapshots.add(partition.clock.now_us() - began_us)
            except DejaQError as error:
                written = error
            if load_number == self._loads:
                self._written = written
                partition.ring()  # what it covers is given back though nobody asks

        self._write = self._writer.submit(write)

    def entry_count(self, partition: Partition) -> int:
        """Entries that no snapshot covers, or will once it is written."""
        return partition.position - self._snapshot_position

    def snapshot_beside(self, partition: Partition) -> Future[None] | None:
        """Take a snapshot of what is durable now; what is waited for until it is written."""
        if not self.busy:
            self.begin_snapshot(partition)
        self._copy_some(partition, None)
        return self._write

    def wait_written(self, partition: Partition) -> None:
        """Wait for a snapshot that is being written, if there is one."""
        self._copy_some(partition, None)
        if self._write is not None:
            self._write.result()
        self._finish_snapshot(partition)

    def _finish_snapshot(self, partition: Partition) -> None:
        written, self._written = self._written, None
        if written is None:
            return
        self._write = None
        if isinstance(written, DejaQError):
            # The next snapshot must not build on files of this one.
            abandon_snapshot(partition.engine)
            news.snapshot_failed(partition.topic().name, partition.number, written)
            return
        self.snapshot_count += 1
        news.snapshot_taken(partition.topic().name, partition.number, written)
        partition.commits.commit_all()  # an append by the committer would be in the way
        partition.journal.truncate(written)

    @property
    def busy(self) -> bool:
        """True while a snapshot is being taken or written."""
        return self._plan is not None or self._write is not None

    def snapshot_and_wait(self, partition: Partition) -> None:
        """At a graceful stop: make the state durable on this thread, so that the start is quick."""
        partition.commits.commit_all()
        if partition.position == self._snapshot_position:
            return
        position = partition.position
        meta, planned = plan_snapshot(partition.engine)
        files = [SnapshotFile(name, content) for name, content in planned]
        _settle_history(partition)
        partition.journal.put_snapshot(position, meta, files)
        partition.journal.truncate(position)

    def _compact(self, partition: Partition) -> bool:
        """Copy live rows out of mostly dead storage, in due order, a few at a time."""
        if len(self._to_copy) == 0:
            if partition.position - self._compacted_position < COMPACT_ENTRIES:
                return False
            if not partition.settles():
                return False
            self._compacted_position = partition.position
            partition.commits.commit_all()
            ranges = partition.journal.sparse()
            if ranges is None:
                return False
            # Found once, as it takes a walk over the whole table; copied over many steps.
            first, last = int(ranges[0, 0]), int(ranges[0, 1])
            self._to_copy = partition.engine.live_in(first, last, limits.BATCH_ROWS_MAX)
        if not partition.idle or not partition.settles():
            return False
        rows, self._to_copy = self._to_copy[:COPY_ROWS_MAX], self._to_copy[COPY_ROWS_MAX:]
        rows = rows[partition.engine.states(rows) != MessageState.DONE]
        if len(rows):
            copy_rows(partition, rows)
            self.copied_rows += len(rows)
        return len(self._to_copy) > 0


def _settle_history(partition: Partition) -> None:
    """What lies before a snapshot is not read again: have its history on the disk."""
    if partition.recorder is not None:
        partition.recorder.settle()


def copy_rows(partition: Partition, sequences: Int64s) -> None:
    """Write the stored columns of these messages again, in this order, and free the old ones."""
    engine, journal, commits = partition.engine, partition.journal, partition.commits
    commits.commit_all()
    batch = journal.read(engine.locators(sequences), TEXT_COLUMNS)
    texts = {}
    for name, column in zip(TEXT_COLUMNS, batch.columns, strict=True):
        if column.null_count:
            column = column.fill_null(b"" if name == "payload" else "")
        texts[name] = entries.text_column(column)
    command = Relocate(partition.now_ms(), partition.next_position(), sequences)
    stored = {name: text for name, text in texts.items() if len(text.data) or name == "payload"}
    partition.apply(command, entries.relocate_entry(command, stored))
    commits.commit(behind=partition.apart is not None)
