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

from dejaqueue.broker import entries
from dejaqueue.engine.commands import Effects, OpenEpoch, Relocate
from dejaqueue.engine.snapshot import abandon_snapshot, plan_snapshot
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import TEXT_COLUMNS, SnapshotFile

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

# Rows copied forward in one step: about a millisecond of work.
COPY_ROWS_MAX = 4_096
# Taking the state keeps the worker from serving while written slabs are copied, 0.5 s a gigabyte.
# The next snapshot by count waits this many times as long, so that it takes one part in a hundred.
SNAPSHOT_REST_FACTOR = 100
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
    """

    def __init__(self, writer: Executor) -> None:
        self._writer = writer
        self._snapshot_position = 0
        self._snapshot_ms = 0
        self._compacted_position = 0
        self._writing = False
        self._write: Future[None] | None = None
        self._written: int | DejaQError | None = None
        self._room_snapshots = 0
        self._rest_ms = 0
        self.snapshot_count = 0
        self.copied_rows = 0

    def loaded(self, partition: Partition, snapshot_position: int) -> None:
        """The partition was read again: what was planned before is void."""
        self._snapshot_position = snapshot_position
        self._snapshot_ms = partition.clock.now_ms()
        self._compacted_position = partition.position
        self._written = None

    def want_room(self) -> None:
        """A producer was refused because the disk is full: soon give back what room there is."""
        self._room_snapshots = ROOM_SNAPSHOTS

    def next_ms(self) -> int | None:
        """When to be called though nothing happens; None = no need."""
        return self._snapshot_ms + ROOM_INTERVAL_MS if self._room_snapshots else None

    def _is_snapshot_due(self, partition: Partition) -> bool:
        settings = partition.settings.journal
        entry_count = partition.position - self._snapshot_position
        age_ms = partition.clock.now_ms() - self._snapshot_ms
        if self._room_snapshots and age_ms >= ROOM_INTERVAL_MS:
            self._room_snapshots -= 1
            if entry_count == 0:
                # The journal lets go of what lies before the older of two snapshots: have two.
                engine = partition.engine
                command = OpenEpoch(partition.now_ms(), engine.epoch)
                engine.apply(command)
                partition.commits.group.add(entries.to_entry(command), Effects())
            return True
        by_count = settings.snapshot_entries and entry_count >= settings.snapshot_entries
        if by_count and age_ms >= self._rest_ms:
            return True
        by_time = settings.snapshot_interval_ms and age_ms >= settings.snapshot_interval_ms
        return bool(by_time and entry_count > 0)

    def step(self, partition: Partition) -> bool:
        """Do a little if it is time; True = there is more to do soon."""
        self._finish_snapshot(partition)
        if not self._writing and self._is_snapshot_due(partition):
            self.begin_snapshot(partition)
        return self._compact(partition)

    def begin_snapshot(self, partition: Partition) -> None:
        """Take the state now; another thread makes it durable."""
        partition.commits.commit_all()  # the engine must not be ahead of what is durable
        position = partition.position
        began_us = partition.clock.now_us()
        meta, planned = plan_snapshot(partition.engine)
        files = [SnapshotFile(name, content) for name, content in planned]
        self._writing = True
        self._snapshot_position = position
        self._snapshot_ms = partition.clock.now_ms()
        self._rest_ms = (partition.clock.now_us() - began_us) * SNAPSHOT_REST_FACTOR // 1_000
        journal = partition.journal

        def write() -> None:
            try:
                journal.put_snapshot(position, meta, files)
            except DejaQError as error:
                self._written = error
            else:
                self._written = position

        self._write = self._writer.submit(write)

    def wait_written(self, partition: Partition) -> None:
        """Wait for a snapshot that is being written, if there is one."""
        if self._write is not None:
            self._write.result()
        self._finish_snapshot(partition)

    def _finish_snapshot(self, partition: Partition) -> None:
        written, self._written = self._written, None
        if written is None:
            return
        self._writing = False
        if isinstance(written, DejaQError):
            # The next snapshot must not build on files of this one.
            abandon_snapshot(partition.engine)
            return
        self.snapshot_count += 1
        partition.journal.truncate(written)

    @property
    def busy(self) -> bool:
        """True while a snapshot is being written."""
        return self._writing and self._written is None

    def snapshot_and_wait(self, partition: Partition) -> None:
        """At a graceful stop: make the state durable on this thread, so that the start is quick."""
        partition.commits.commit_all()
        if partition.position == self._snapshot_position and not self._writing:
            return
        position = partition.position
        meta, planned = plan_snapshot(partition.engine)
        files = [SnapshotFile(name, content) for name, content in planned]
        partition.journal.put_snapshot(position, meta, files)
        partition.journal.truncate(position)

    def _compact(self, partition: Partition) -> bool:
        """Copy live rows out of mostly dead storage, in due order, a few at a time."""
        if partition.position - self._compacted_position < COMPACT_ENTRIES:
            return False
        ranges = partition.journal.sparse()
        if ranges is None or not partition.idle:
            if ranges is None:
                self._compacted_position = partition.position
            return False
        first, last = int(ranges[0, 0]), int(ranges[0, 1])
        sequences = partition.engine.live_in(first, last, COPY_ROWS_MAX)
        if len(sequences) == 0:
            self._compacted_position = partition.position
            return False
        copy_rows(partition, sequences)
        self.copied_rows += len(sequences)
        return True


def copy_rows(partition: Partition, sequences: np.ndarray) -> None:
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
    effects = engine.apply(command)
    stored = {name: text for name, text in texts.items() if len(text.data) or name == "payload"}
    commits.group.add(entries.relocate_entry(command, stored), effects)
    commits.commit(behind=False)
