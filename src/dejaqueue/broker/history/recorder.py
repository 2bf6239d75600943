"""A partition's recorder: from what is durable in the journal to files of history.

Room: broker. Three threads meet here: the partition's worker turns it on and off, whoever made a
group durable hands it over, and the history's own thread encodes and writes.
Holds: nobody but that own thread waits for the disk; each position of the journal is recorded once
at most, also if it is read again; what is left out leaves a gap, in its place.
See: history.py, which bounds all recorders together; files.py for where a file lies.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dejaqueue.broker import news
from dejaqueue.broker.consumers.dispatch import Consumer, Push
from dejaqueue.broker.counting import TopicCounts
from dejaqueue.broker.history.encode import open_parquet, tables_of
from dejaqueue.broker.history.history import WAIT_SECONDS_MAX, History
from dejaqueue.broker.history.pieces import HOUR_MS, Piece
from dejaqueue.broker.shard.chore import Chore, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.journal.interface import Entry
from dejaqueue.model import Topic

CHUNK_ROWS = 32_768
"""Changes that are encoded together: a row group of a file. Two milliseconds of work: more at a
time costs less, but keeps a core longer from who delivers."""
PIECES_MAX = 8_192
"""So many pieces are encoded together at most: each is a few objects until then."""
WRITE_BACK_BYTES = 4 << 20
"""The disk is asked to write so much at a time, so that the sync in the end has little to do."""
OFF = "history was off"
BEHIND = "the disk did not keep up"
FAILED = "a file could not be written"
GONE = "history was off, or its files are gone"


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, by the history's own thread alone.

    Attributes:
        first, last: positions that are in it so far.
        has_gaps: True: some of them are not recorded, and it says so.
    """

    path: Path
    sink: pa.NativeFile
    parquet: pq.ParquetWriter
    hour_ms: int
    first: int
    last: int
    rows: int = 0
    asked_bytes: int = 0
    has_gaps: bool = False

    def write_back(self) -> None:
        """Have the system write what is new to the disk by and by; it may refuse."""
        byte_count = self.sink.tell()
        if byte_count - self.asked_bytes >= WRITE_BACK_BYTES:
            self.asked_bytes = byte_count
            with contextlib.suppress(OSError, AttributeError):  # not on every system
                os.posix_fadvise(self.sink.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Recorder(Chore, Listener):
    """Records one partition; it is off until the topic is configured to have a history.

    Args:
        history: of the broker.
        counting: where it counts what was recorded and what was missed.
    """

    def __init__(self, history: History, topic: str, partition: int, counting: TopicCounts) -> None:
        self._history = history
        self._topic = topic
        self._partition = partition
        self._counting = counting
        self._lock = history.lock
        self.is_on = False
        # Under the lock.
        self._seen: int | None = None
        self._pieces: list[Piece] = []
        self._rows = 0
        self._hour = -1
        self._since_ms: int | None = None
        self._gap: Piece | None = None
        # The own thread's.
        self._file: _OpenFile | None = None
        self._written = 0
        self._is_failing = False
        history.add(self)

    # --- the worker's thread ------------------------------------------------------------------

    def configured(self, core: PartitionCore) -> None:
        """The topic's settings changed: record from now on, or no more."""
        is_wanted = core.topic().history
        core.engine.note_changes(is_wanted)
        self.turn(is_wanted, core.next_position() - 1, core.now_ms())

    def turn(self, on: bool, position: int, at_ms: int) -> None:
        """Record what comes after this position of the journal, or nothing any more."""
        if on == self.is_on:
            return
        if not on:
            self.roll()
            self.is_on = False
            return
        with self._lock:
            self._look()
            assert self._seen is not None
            if self._seen < position:
                self._miss(Piece(self._seen + 1, position, 0, (), missed=0, reason=OFF), at_ms)
        self.is_on = True

    def reading(self, topic: Topic, engine: Engine, position: int) -> None:
        """The journal is read from this position on; what is new in it comes to `replayed`."""
        self.is_on = topic.history
        engine.note_changes(self.is_on)
        if not self.is_on:
            return
        with self._lock:
            self._look()
            assert self._seen is not None
            if self._seen < position:
                gap = Piece(self._seen + 1, position, 0, (), missed=0, reason=GONE)
                self._miss(gap, engine.now_ms)

    def _look(self) -> None:
        """What was recorded before this process; under the lock."""
        if self._seen is None:
            self._history.adopt(self._topic)
            self._seen = self._history.files.recorded(self._topic, self._partition)
            self._written = self._seen

    def replayed(self, position: int, entry: Entry, effects: Effects) -> None:
        """Record an entry that was read from the journal, if it is not recorded yet."""
        changes = [EntryChanges.of(0, entry, effects)] if effects.changes else []
        self.record(position, position, changes)

    def next_us(self, core: PartitionCore) -> int | None:
        """When to finish a file, or to look for old ones, clock µs; None = no need."""
        return wake_us(core, self._next_ms())

    def _next_ms(self) -> int | None:
        if not self.is_on:
            return None
        since_ms, prune_ms = self._since_ms, self._history.next_prune_ms
        if since_ms is None:
            return prune_ms
        return min(since_ms + self._history.settings.roll_ms, prune_ms)

    def step(self, core: PartitionCore) -> None:
        """Finish the file if it is time; have old ones deleted if it is time. Does not block."""
        now_ms = core.clock.utc_ms()
        since_ms, roll_ms = self._since_ms, self._history.settings.roll_ms
        # A clock that was put back does not keep a file open.
        if since_ms is not None and abs(now_ms - since_ms) >= roll_ms:
            self.roll()
        self._history.prune_if_due(now_ms)

    # --- where groups become durable ----------------------------------------------------------

    def durable(
        self,
        first: int,
        last: int,
        changes: Sequence[EntryChanges],
        pushes: Sequence[tuple[Consumer, Push]],
    ) -> None:
        """Take what a group changed, and who got its leases. Does not block."""
        if self.is_on:
            consumers = {push.leased.lease_id: consumer.name for consumer, push in pushes}
            self.record(first, last, changes, consumers, self._history.clock.utc_ms())

    def record(
        self,
        first: int,
        last: int,
        changes: Sequence[EntryChanges],
        consumers: Mapping[int, str] | None = None,
        pushed_ms: int = -1,
    ) -> None:
        """Take what the entries from `first` to `last`, durable now, changed. Does not block."""
        if not self.is_on:
            return
        piece = Piece(first, last, first, tuple(changes), consumers or {}, pushed_ms)
        with self._lock:
            seen = self._seen
            if seen is None or last <= seen:
                return
            if first <= seen:
                piece = piece.after(seen)
            self._seen = last
            if not piece.changes:
                return
            for part in piece.by_hours():
                self._take(part)

    def _take(self, piece: Piece) -> None:
        """Under the lock."""
        rows = piece.rows
        if not self._history.has_room(rows):
            gap = piece._replace(changes=(), missed=rows, reason=BEHIND)
            self._miss(gap, piece.at_ms)
            return
        if self._gap is not None:
            self._add(self._gap)
            self._gap = None
        self._add(piece)
        if self._rows >= CHUNK_ROWS or len(self._pieces) >= PIECES_MAX:
            self.encode()
        elif self._history.is_crowded:
            self._history.encode_all()

    def _add(self, piece: Piece) -> None:
        hour = piece.at_ms // HOUR_MS
        if hour != self._hour:
            if self._since_ms is not None:
                self._roll()
            self._hour = hour
        if self._since_ms is None:
            self._since_ms = piece.at_ms
        self._pieces.append(piece)
        self._rows += piece.rows
        self._history.waiting_rows += piece.rows

    def _miss(self, gap: Piece, at_ms: int) -> None:
        """Note what is not recorded; its row comes before the next one that is. Under the lock."""
        self._seen = max(self._seen or 0, gap.last)
        if gap.reason != OFF:  # which is as its owner wished
            self._counting.history_missed.add(max(gap.missed, 1))
        if self._gap is not None:
            known = self._gap.missed and gap.missed
            missed = self._gap.missed + gap.missed if known else 0
            gap = gap._replace(first=self._gap.first, missed=missed)
        elif gap.reason != OFF:
            news.history_missed(self._topic, self._partition, gap.missed, gap.reason)
        self._gap = gap._replace(gap_at_ms=at_ms)

    def encode(self) -> None:
        """Have the own thread encode what waits. Under the lock."""
        pieces, rows = self._pieces, self._rows
        if pieces:
            self._pieces, self._rows = [], 0
            self._history.submit(lambda: self._write(pieces, rows))

    def roll(self) -> Future[None]:
        """Finish the file: done when all that was recorded so far can be seen, or has failed."""
        with self._lock:
            if self._gap is not None:
                self._add(self._gap)
                self._gap = None
            return self._roll()

    def closed(self) -> None:
        """The partition is served no more: finish the file, soon."""
        if self.is_on:
            self.roll()

    def settle(self) -> None:
        """Wait until what was recorded so far is on the disk, for a while at most."""
        if not self.is_on:
            return
        try:
            self.roll().result(WAIT_SECONDS_MAX)
        except TimeoutError:
            news.history_missed(self._topic, self._partition, 0, "a snapshot could not wait")

    def _roll(self) -> Future[None]:
        self.encode()
        self._since_ms, seen = None, self._seen or 0
        return self._history.submit(lambda: self._finish(seen))

    # --- the own thread -----------------------------------------------------------------------

    def _write(self, pieces: list[Piece], rows: int) -> None:
        try:
            for table in tables_of(pieces, self._partition):
                file = self._file or self._open(pieces[0])
                file.parquet.write_table(table)
                file.rows += table.num_rows
                file.last = pieces[-1].last
                file.write_back()
            if self._file and any(piece.is_gap for piece in pieces):
                self._file.has_gaps = True
            if self._file and self._file.sink.tell() >= self._history.settings.roll_bytes:
                self._finish(pieces[-1].last)
        except (OSError, pa.ArrowException) as wrong:
            self._fail(wrong, pieces, rows)
        finally:
            with self._lock:
                self._history.waiting_rows -= rows

    def _open(self, piece: Piece) -> _OpenFile:
        first = self._written + 1
        path = self._history.files.open_path(self._topic, self._partition, first)
        sink = pa.OSFile(str(path), "wb")
        hour_ms = piece.at_ms // HOUR_MS * HOUR_MS
        encryption = self._history.files.encryption
        parquet = open_parquet(sink, None if encryption is None else encryption.writing())
        self._file = _OpenFile(path, sink, parquet, hour_ms, first, first)
        return self._file

    def _finish(self, last: int) -> None:
        file, self._file = self._file, None
        if file is None:
            self._mark(last)
            return
        address = (self._topic, self._partition, file.hour_ms, file.first, last)
        try:
            file.parquet.close()
            file.sink.close()
            self._history.files.finish(file.path, *address, has_gaps=file.has_gaps)
        except (OSError, pa.ArrowException) as wrong:
            self._file = file
            self._fail(wrong, [], 0)
            return
        self._written = last
        self._is_failing = False
        self._counting.history_recorded.add(file.rows)
        self._history.file_done()

    def _mark(self, last: int) -> None:
        """Nothing happened to messages up to there since the last file: remember that."""
        if last > self._written:
            try:
                self._history.files.mark(self._topic, self._partition, last)
                self._written = last
            except OSError as wrong:
                news.history_failed(self._topic, self._partition, wrong)

    def _fail(self, wrong: Exception, pieces: list[Piece], rows: int) -> None:
        """The file is lost, and with it all that was to be in it."""
        if not self._is_failing:
            news.history_failed(self._topic, self._partition, wrong)
        self._is_failing = True
        file, self._file = self._file, None
        last, at_ms = (pieces[-1].last, pieces[-1].at_ms) if pieces else (0, 0)
        first = self._written + 1
        if file is not None:
            last, at_ms = max(last, file.last), max(at_ms, file.hour_ms)
            rows += file.rows
            try:
                file.sink.close()
                file.path.unlink(missing_ok=True)
            except (OSError, pa.ArrowException):
                pass  # dropped when the broker starts
        self._written = max(self._written, last)
        with self._lock:
            self._miss(Piece(first, last, 0, (), missed=rows, reason=FAILED), at_ms)
