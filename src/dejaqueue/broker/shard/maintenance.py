"""Snapshots and compaction of a partition: small steps between the steps that serve.

Room: broker. Runs on the worker's thread; only the writing of snapshot files is left to another
one.
Holds: the journal is truncated only up to a snapshot that is durable; rows are freed only after
their copies are durable, and whoever is still to read them knows of the copies.
See: docs/guides/sizing.md; journal/interface.py duties 7 and 10.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Protocol

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker import news
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.stored_rows import RowsAwaited, StoredRows
from dejaqueue.broker.shard.unread_entries import UnreadEntries, UnreadShare
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import OpenEpoch, Relocate
from dejaqueue.engine.snapshot import SnapshotPlan
from dejaqueue.engine.view_snapshots import (
    ViewsPlan,
    abandon_views_snapshot,
    begin_views_snapshot,
    plan_views_snapshot,
)
from dejaqueue.errors import DejaQError, EncryptionKeyMissing, JournalDamaged
from dejaqueue.journal.interface import TEXT_COLUMNS, SnapshotFile

# Rows copied forward in one step: about a millisecond of work, which due messages can wait.
COPY_ROWS_MAX = 4_096
# Slabs of the message table that are copied for a snapshot in one step: about two milliseconds.
COPY_SLABS = 4
# While producers are refused for lack of room, a snapshot this often: it lets segments go.
ROOM_INTERVAL_MS = 1_000
# Snapshots until what was done before the first of them is gone: the journal keeps two.
ROOM_SNAPSHOTS = 2
# Entries between two looks for storage that is worth compacting.
COMPACT_ENTRIES = 2_000
# A damaged row is tried again after this: somebody may put the file back.
DAMAGED_US = 60_000_000


class RoomBell(Protocol):
    """Says that the disk is full, to all partitions that keep their journals on it."""

    @property
    def wanted_count(self) -> int:
        """How often it was rung."""
        ...

    def want(self) -> None:
        """Somebody was refused for lack of room. Does not block."""
        ...


class Maintenance(Chore):
    """What one partition needs now and then.

    Args:
        writer: writes snapshot files, so that the worker goes on serving.
        room: asks the other partitions for room as well.
        unread: what a start would have to read again of all partitions.
        settle_history: returns when what was recorded so far is on the disk: what lies before a
            snapshot is not read again. Called on the writer's thread, and at a stop.

    Attributes:
        snapshot_count: snapshots that were made durable since the start.
        copied_rows: rows that were copied so that mostly dead storage could go.
    """

    def __init__(
        self,
        writer: Executor,
        room: RoomBell,
        unread: UnreadEntries,
        settle_history: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = writer
        self._room = room
        self._unread = UnreadShare(unread)
        self._room_wanted = room.wanted_count
        self._settle_history = settle_history
        self._snapshot_position = 0
        self._snapshot_ms = 0
        self._compacted_position = 0
        self._loads = 0
        self._plan: SnapshotPlan | ViewsPlan | None = None
        self._write: Future[None] | None = None
        self._written: int | DejaQError | None = None
        self._room_snapshots = 0
        self._covered = self._given_back = 0
        """Up to where a snapshot covers entries, and up to where the journal was told to give them
        back: backups may lack what is between the two."""
        self._to_copy: Int64s = np.zeros(0, dtype=np.int64)
        self._copy_rows_max = COPY_ROWS_MAX
        self._damaged: set[int] = set()
        """Entries whose rows cannot be read: they stay where they are, until then."""
        self._damaged_until_us = 0
        self.snapshot_count = 0
        self.copied_rows = 0

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read again: what was planned before is void."""
        self._snapshot_position = core.read_from
        self._snapshot_ms = core.clock.now_ms()
        self._compacted_position = core.position
        self._loads += 1
        self._to_copy = self._to_copy[:0]
        self._damaged.clear()
        self._damaged_until_us = 0
        # Of its own: what requests wait for and what is copied may be many bytes, and come apart.
        self._stored = StoredRows(core.journal, core.commits, core.ring)
        self._plan = self._write = self._written = None
        self._covered = self._given_back = 0
        if core.journal.holds_room:
            self._room_snapshots = ROOM_SNAPSHOTS

    def _see_room(self, core: PartitionCore) -> None:
        """A producer was refused because the disk is full, here or of another partition, or
        something is being erased: soon give back what room there is."""
        if core.lacks_room:
            core.lacks_room = False
            if core.is_held:  # room for what is sent comes before a backup, which is told
                core.let_go()
            self._give_up(core, "the disk is full")
            self._room_snapshots = ROOM_SNAPSHOTS
            self._room.want()
        if core.journal.is_pressed:
            if core.journal.is_urgent:
                self._give_up(core, "something of it is being erased")
            if not self._room_snapshots and not self.busy:
                self._room_snapshots = ROOM_SNAPSHOTS
        if self._room.wanted_count != self._room_wanted:
            self._room_wanted = self._room.wanted_count
            # What waits for a backup stays, however many snapshots cover it.
            has_some = core.floor.limit(core.position) > self._given_back
            if has_some and core.journal.holds_room:
                self._room_snapshots = ROOM_SNAPSHOTS

    def next_us(self, core: PartitionCore) -> int | None:
        """When the next snapshot is due, clock µs; None = when something happens."""
        due_ms = self._next_snapshot_ms(core)
        return None if due_ms is None else due_ms * 1_000

    def _next_snapshot_ms(self, core: PartitionCore) -> int | None:
        if self.busy or core.is_held:
            return None
        if self._room_snapshots:
            return self._snapshot_ms + ROOM_INTERVAL_MS
        interval_ms = core.settings.journal.snapshot_interval_ms
        if interval_ms and (self.entry_count(core) or core.journal.holds_room):
            return self._snapshot_ms + interval_ms
        return None

    def _is_snapshot_wanted(self, core: PartitionCore) -> bool:
        if core.is_held:
            return False
        settings = core.settings.journal
        entry_count, most = core.position - self._snapshot_position, settings.snapshot_entries
        age_ms = core.clock.now_ms() - self._snapshot_ms
        if self._room_snapshots and age_ms >= ROOM_INTERVAL_MS:
            return True
        if most and self._unread.is_too_much(entry_count, core.backlog.count, most):
            return True
        by_time = settings.snapshot_interval_ms and age_ms >= settings.snapshot_interval_ms
        return bool(by_time and (entry_count > 0 or core.journal.holds_room))

    def _prepare_snapshot(self, core: PartitionCore, *, is_idle: bool) -> None:
        """One for the sake of room has something to cover."""
        is_old = core.position == self._snapshot_position
        if not self._room_snapshots and not is_old:
            return
        if is_old and core.follows:
            return  # it may append nothing
        if is_idle:
            core.journal.turn_over()
        if is_old:
            # The journal lets go of what lies before the older of two snapshots: have two.
            core.apply(OpenEpoch(core.now_ms(), core.engine.epoch))
            if core.commits.is_apart:
                core.commits.commit(behind=True)

    def after_append(self, core: PartitionCore, *, is_idle: bool) -> bool:
        """Do a little if it is time; True = there is more to do soon."""
        if self._written is not None and core.commits.settles():
            self._finish_snapshot(core)
        self._see_room(core)
        self._give_back(core)
        self._unread.note(self.entry_count(core))
        if not self.busy and self._is_snapshot_wanted(core) and core.commits.settles():
            self._prepare_snapshot(core, is_idle=is_idle)
            if core.commits.settles():
                self._room_snapshots = max(self._room_snapshots - 1, 0)
                self.begin_snapshot(core)
        self._copy_some(core)
        if self._plan is not None:
            return True
        # What is copied at the active site comes with its entries.
        return not core.follows and self._compact(core, is_idle=is_idle)

    def closed(self) -> None:
        """The partition is served no more."""
        self._unread.end()

    def begin_snapshot(self, core: PartitionCore) -> None:
        """Hold the state as it is now; it is copied in the next steps, then made durable."""
        core.commits.commit_all()  # the engine must not be ahead of what is durable
        self._snapshot_position = core.position
        self._snapshot_ms = core.clock.now_ms()
        self._plan = begin_views_snapshot(core.views)

    def _copy_some(self, core: PartitionCore, slab_count: int | None = COPY_SLABS) -> None:
        """Copy a little of the state; when all is copied, another thread makes it durable."""
        plan = self._plan
        if plan is None or not plan.copy_some(slab_count):
            return
        self._plan = None
        files = [SnapshotFile(name, content) for name, content in plan.files()]
        journal, position, load_number = core.journal, self._snapshot_position, self._loads

        def write() -> None:
            written: int | DejaQError = position
            began_us = core.clock.now_us()
            try:
                self._settle_history()
                journal.put_snapshot(position, plan.meta, files)
                core.counting.topic.snapshots.add(core.clock.now_us() - began_us)
            except DejaQError as error:
                written = error
            if load_number == self._loads:
                self._written = written
                core.ring()  # what it covers is given back though nobody asks

        self._write = self._writer.submit(write)

    def entry_count(self, core: PartitionCore) -> int:
        """Entries that no snapshot covers, or will once it is written."""
        return core.position - self._snapshot_position

    def snapshot_beside(self, core: PartitionCore) -> Future[None] | None:
        """Take a snapshot of what is durable now; what is waited for until it is written."""
        if not self.busy:
            self.begin_snapshot(core)
        self._copy_some(core, None)
        return self._write

    def wait_written(self, core: PartitionCore) -> None:
        """Wait for a snapshot that is being written, if there is one."""
        self._copy_some(core, None)
        if self._write is not None:
            self._write.result()
        self._finish_snapshot(core)

    def _finish_snapshot(self, core: PartitionCore) -> None:
        written, self._written = self._written, None
        if written is None:
            return
        self._write = None
        if isinstance(written, DejaQError):
            # The next snapshot must not build on files of this one.
            abandon_views_snapshot(core.views)
            news.snapshot_failed(core.topic().name, core.number, written)
            return
        self.snapshot_count += 1
        news.snapshot_taken(core.topic().name, core.number, written)
        core.commits.commit_all()  # an append by the committer would be in the way
        self._covered = written
        self._give_back(core)

    def _give_back(self, core: PartitionCore) -> None:
        """Have the journal give back what a snapshot covers, and backups have."""
        if self._given_back == self._covered:
            return
        if core.floor.is_late():
            self._give_up(core, "no backup was taken for long")
        limit = core.floor.limit(self._covered)
        if limit > self._given_back and core.commits.settles():
            core.commits.commit_all()  # an append by the committer would be in the way
            core.journal.truncate(limit)
            self._given_back = limit

    def _give_up(self, core: PartitionCore, reason: str) -> None:
        if core.floor.give_up() and self._given_back < self._covered:
            news.archive_gap(core.topic().name, core.number, reason)

    @property
    def busy(self) -> bool:
        """True while a snapshot is being taken or written."""
        return self._plan is not None or self._write is not None

    def snapshot_and_wait(self, core: PartitionCore) -> None:
        """At a graceful stop: make the state durable on this thread, so that the start is quick."""
        core.commits.commit_all()
        if core.position == self._snapshot_position:
            return
        position = core.position
        meta, planned = plan_views_snapshot(core.views)
        files = [SnapshotFile(name, content) for name, content in planned]
        self._settle_history()
        core.journal.put_snapshot(position, meta, files)
        core.journal.truncate(core.floor.limit(position))

    def _compact(self, core: PartitionCore, *, is_idle: bool) -> bool:
        """Copy live rows out of mostly dead storage, in due order, a few at a time."""
        if len(self._to_copy) == 0:
            few = core.position - self._compacted_position < COMPACT_ENTRIES
            is_stuck = core.clock.now_us() < self._damaged_until_us
            if few and (is_stuck or not core.journal.is_asked):
                return False
            if not core.commits.settles():
                return False
            self._compacted_position = core.position
            core.commits.commit_all()
            ranges = core.journal.sparse()
            if ranges is None:
                return False
            # Found once, as it takes a walk over the whole table; copied over many steps.
            first, last = int(ranges[0, 0]), int(ranges[0, 1])
            self._to_copy = core.views.live_in(first, last, limits.BATCH_ROWS_MAX)
            self._copy_rows_max = COPY_ROWS_MAX
            if not is_stuck:
                self._damaged.clear()
            self._leave_damaged(core)
        is_pressed = core.journal.has_rows_pressed  # copied even where requests always wait
        if not (is_idle or is_pressed) or not core.commits.settles():
            return False
        rows = self._to_copy[: self._copy_rows_max]
        rows = rows[core.views.locators(rows) >= 0]
        if len(rows):
            try:
                copy_rows(core, self._stored, rows)
            except RowsAwaited:
                return False  # the partition is rung
            except (JournalDamaged, EncryptionKeyMissing) as damage:
                self._pass_over(core, rows, damage)
                return len(self._to_copy) > 0
            self._stored.forget()
            self.copied_rows += len(rows)
        self._to_copy = self._to_copy[self._copy_rows_max :]
        return len(self._to_copy) > 0 or (is_pressed and len(rows) > 0)

    def _pass_over(self, core: PartitionCore, rows: Int64s, damage: DejaQError) -> None:
        """One of these rows cannot be read: find out which, and leave its entry where it is."""
        self._stored.forget()
        positions = core.views.locators(rows) >> limits.ROW_BITS
        if (positions != positions[0]).any():
            self._copy_rows_max = max(len(rows) // 2, 1)
            return
        self._copy_rows_max = COPY_ROWS_MAX
        self._damaged.add(int(positions[0]))
        self._damaged_until_us = core.clock.now_us() + DAMAGED_US
        news.not_copied(core.topic().name, core.number, damage)
        self._leave_damaged(core)

    def _leave_damaged(self, core: PartitionCore) -> None:
        if self._damaged and len(self._to_copy):
            positions = core.views.locators(self._to_copy) >> limits.ROW_BITS
            self._to_copy = self._to_copy[~np.isin(positions, list(self._damaged))]


def copy_rows(core: PartitionCore, stored: StoredRows, sequences: Int64s) -> None:
    """Write the stored columns of these messages again, in this order, and free the old ones.

    Raises:
        RowsAwaited: nothing was written yet.
    """
    commits = core.commits
    commits.commit_all()
    relocate_rows(core, sequences, stored.read(core.views.locators(sequences), TEXT_COLUMNS))
    commits.commit(behind=commits.is_apart)


def relocate_rows(core: PartitionCore, sequences: Int64s, batch: pa.RecordBatch) -> None:
    """Store these rows for these messages in the group that is being filled, in this order; the
    old ones are freed when that is durable.

    Args:
        batch: columns TEXT_COLUMNS.
    """
    texts = {}
    for name, column in zip(TEXT_COLUMNS, batch.columns, strict=True):
        if column.null_count:
            column = column.fill_null(b"" if name == "payload" else "")
        texts[name] = entries.text_column(column)
    command = Relocate(core.now_ms(), core.next_position(), sequences)
    texts = {name: text for name, text in texts.items() if len(text.data) or name == "payload"}
    core.apply(command, entries.relocate_entry(command, texts))
    _tell_readers(core, command)


def _tell_readers(core: PartitionCore, command: Relocate) -> None:
    """Tell whoever has leased rows to read where their copies are."""
    pushes = list(core.unread)
    if not pushes:
        return
    awaited = np.concatenate([push.leased.sequences for push in pushes])
    owners = np.repeat(np.arange(len(pushes)), [push.leased.sequences.size for push in pushes])
    for owner in np.unique(owners[np.isin(awaited, command.sequences)]).tolist():
        push = pushes[owner]
        rows = np.flatnonzero(np.isin(command.sequences, push.leased.sequences))
        rows = rows[command.sequences[rows].argsort(kind="stable")]
        locators = (command.position << limits.ROW_BITS) + rows
        push.copies.append((command.sequences[rows], locators))
