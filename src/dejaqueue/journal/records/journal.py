"""A journal on a server that keeps numbered records: written once, for every such server.

An append of the broker's group is one record, or a few; see record.py. It is durable when the
server says so. What was appended or scanned is kept here as well (mirror.py), so that payloads are
read as from segment files; what is not there is read from the server.

Room: journal. One writer; `read`, `put_snapshot` and `byte_count` from any thread.
Holds: what the server gave is checked, entry by entry and record by record, each time it is read; a
lost answer is found out (writer.py), never guessed; nothing here depends on the mirror.
See: journal/interface.py (the duties); docs/adr/0012-records-on-a-server-a-mirror-here.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.clock import Wake
from dejaqueue.errors import (
    DejaQError,
    Fenced,
    InternalError,
    JournalDamaged,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.format import Piece
from dejaqueue.journal.interface import (
    TEXT_COLUMNS,
    Entry,
    Erasure,
    Int64s,
    Journal,
    Snapshot,
    SnapshotFile,
)
from dejaqueue.journal.records.append_cache import RUN_BYTES_MAX, AppendCache
from dejaqueue.journal.records.append_index import AppendIndex, ReadCursor, SnapshotIndex
from dejaqueue.journal.records.concurrency import Concurrency
from dejaqueue.journal.records.erasure import RecordErasure
from dejaqueue.journal.records.interface import RecordLog, RecordStore
from dejaqueue.journal.records.mirror import Mirror, covers, segment_at
from dejaqueue.journal.records.reading import CheckedRecords, EntryFacts, WholeAppend
from dejaqueue.journal.records.snapshot_objects import SnapshotObjects
from dejaqueue.journal.records.writer import Landed, RecordWriter
from dejaqueue.journal.segments.segment import READABLE, Segment, SegmentList

log = logging.getLogger(__name__)

_LEDGER_PART: Final = "appends-"
_OPEN_TRIES: Final = 3
_ROOM_APPENDS: Final = 8
"""Appends of others that must get through before producers go on, once the server had no room."""


class RecordJournal(Journal):
    """The journal of one partition. Made by a store; see there for the settings."""

    reopens = True

    def __init__(
        self,
        store: RecordStore,
        records: RecordLog,
        mirror: Mirror,
        *,
        place: str,
        prefix: str,
        patience_seconds: float,
        background: Executor | None,
        concurrency: Concurrency | None = None,
        on_close: Callable[[], None] = lambda: None,
        check_made: Callable[[], None] | None = None,
        is_short: Callable[[], bool] = lambda: False,
        ask: Callable[[], None] = lambda: None,
        is_owner: bool = True,
        cipher: Cipher | None = None,
    ) -> None:
        self._cipher, self._is_owner = cipher, is_owner
        self._check_made, self._is_short = check_made, is_short
        self._store, self._log, self._mirror = store, records, mirror
        self._place, self._background, self._on_close = place, background, on_close
        self._prefix = prefix
        self._failure: str | None = None
        self._is_followed = False
        """Several have it open and know what the others append: it has no owner. Of one that is
        read ahead, another broker is the owner until it is taken over."""
        self._closing = Wake()
        self._guard = threading.Lock()
        self._truncated = 0
        self._drop_waits = False
        self._no_room = 0
        self._checked = CheckedRecords(records, place)
        self._append_cache = AppendCache(self._checked, cipher=cipher)
        self._append_index = AppendIndex()
        self._open()
        stand = self._append_index.stand
        self._writer = RecordWriter(
            records,
            self._checked,
            stand,
            store.record_bytes_max,
            patience_seconds,
            concurrency or Concurrency(),
            self._closing,
        )
        self._erasure = RecordErasure(
            place,
            store,
            records,
            mirror,
            self._guard,
            concurrency or Concurrency(),
            check_owner=self._writer.check_owner,
            ask=ask,
        )

    # --- opening -------------------------------------------------------------------------------

    def _open(self) -> None:
        for last_try in range(_OPEN_TRIES - 1, -1, -1):
            self._snapshot_objects = SnapshotObjects(self._store, self._prefix, self._cipher)
            try:
                self._recover()
                self._check_begun()
                return
            except JournalDamaged:
                # The owner before may have taken a snapshot meanwhile, and dropped what was before.
                if not last_try or self._snapshot_objects.is_newest():
                    raise

    def _check_begun(self) -> None:
        """Refuse an empty log where there were records: it was lost, and made again just now."""
        if self._append_index.tail:
            # An append of the owner before may be in, and the mark not.
            with suppress(ResourceExhausted):  # who reads what is there needs no room
                self._snapshot_objects.begin()
            return
        if self._check_made is not None:
            self._check_made()  # it may have come into being just now, after a drop
        if self._snapshot_objects.has_begun:
            raise JournalDamaged(
                f"{self._place}: the server has no records, though some were durable there"
            )

    def _recover(self) -> None:
        """Read the records behind the snapshot into the append index and mirror."""
        self._checked.identity = 0
        self._append_index = self._saved_index()
        stand = self._append_index.stand
        last, self._log.last_at_opening = self._log.last_at_opening, None
        if last is None or last < stand.number - 1:
            last = self._log.last()
        if last < stand.number - 1:
            raise JournalDamaged(
                f"{self._place}: the server ends at record {last}, but a snapshot covers record "
                f"{stand.number - 1}"
            )
        for found in self._checked.appends(stand, last, is_owner=self._is_owner):
            self._take_in(found)
        self._mirror.keep_only(self._append_index)
        # So far the owner before may have dropped records.
        self._truncated = self._snapshot_objects.kept_position
        if self._append_index.tail == 0:
            self._append_index.adopt_nothing()

    def _take_in(self, found: WholeAppend | ReadCursor) -> None:
        """Have what was read in the append index and mirror."""
        with self._guard:
            if isinstance(found, ReadCursor):
                self._append_index.stand = found
                return
            chain = self._append_index.stand.entry_chain
            self._note(found)
        self._mirror.add(found.position, chain, [found.body], found.entries)

    def follow(self) -> int:
        """See Journal.follow."""
        self._check_usable()
        self._is_followed = self._is_owner
        stand = self._append_index.stand
        last = self._log.last()
        if last < stand.number:
            return self.tail
        was_empty = not self.tail
        if stand.number == 1:  # it was drawn for a first append that another one overtook
            self._checked.identity = 0
        try:
            for found in self._checked.appends(stand, last, is_owner=False):
                self._take_in(found)
        finally:  # what was read so far is not read again
            self._writer.go_on(self._append_index.stand)
        if was_empty and self.tail:
            with suppress(ResourceExhausted):  # see `_check_begun`
                self._snapshot_objects.begin()
        return self.tail

    def take_over(self) -> bool:
        """See Journal.take_over."""
        self._check_usable()
        if not self._append_index.tail or not self._snapshot_objects.is_newest():
            return False  # of an empty journal nothing was read that could be kept
        stand, self._is_owner = self._append_index.stand, True
        for found in self._checked.appends(stand, self._log.last()):
            self._take_in(found)
        self._writer.go_on(self._append_index.stand)
        return True

    def _saved_index(self) -> AppendIndex:
        manifest = self._snapshot_objects.newest()
        if manifest is None:
            return AppendIndex()
        saved = SnapshotIndex.decode(manifest.meta)
        self._checked.identity = saved.identity
        blocks = [bytes(self._snapshot_objects.read(name)) for name in saved.blocks]
        return AppendIndex.restored(saved.base, blocks, saved.stand)

    def _note(self, found: WholeAppend) -> None:
        self._append_index.add(
            found.after,
            entries=len(found.entries),
            byte_count=len(found.body),
            rows=found.rows,
            readable_bytes=found.readable_bytes,
            parts=found.parts,
            number=found.number,
            chain_before=found.chain_before,
        )

    # --- writing -------------------------------------------------------------------------------

    @property
    def repairs(self) -> list[str]:
        """See Journal.repairs."""
        return list(self._snapshot_objects.damaged)

    @property
    def tail(self) -> int:
        """Position of the last entry, 0 if there is none."""
        return self._append_index.tail

    def append(self, entries: Sequence[Entry], after: int, epoch: int) -> int:
        """See Journal.append."""
        self._check_usable()
        if after != self._append_index.tail:
            raise Fenced(f"the tail of {self._place} is {self._append_index.tail}, not {after}")
        if not entries:
            raise InternalError("an append of no entries")
        chain = self._append_index.stand.entry_chain
        pieces, facts = self._encoded(entries, epoch)
        byte_count = sum(one.byte_count for one in facts)
        try:
            landed = self._writer.append(pieces, after + 1, len(facts), byte_count)
        except ResourceExhausted:
            self._no_room = _ROOM_APPENDS
            raise
        except Unavailable as failure:
            self._failure = str(failure)
            raise
        if after == 0:
            try:
                self._snapshot_objects.begin()
                if self._check_made is not None:
                    # It may have been dropped since it was opened: what came then is nobody's.
                    self._check_made()
            except DejaQError as failure:
                self._failure = str(failure)
                raise
        self._no_room = max(self._no_room - 1, 0)
        self._land(landed, facts, byte_count)
        self._mirror.add(after + 1, chain, pieces, facts)
        self.appended_bytes += byte_count
        return self._append_index.tail

    def _encoded(
        self, entries: Sequence[Entry], epoch: int
    ) -> tuple[list[Piece], list[EntryFacts]]:
        chain, tail = self._append_index.stand.entry_chain, self._append_index.tail
        pieces: list[Piece] = []
        facts: list[EntryFacts] = []
        for place, entry in enumerate(entries, 1):
            one = entry_format.encode(entry, tail + place, epoch, chain, tail, cipher=self._cipher)
            chain = one.checksum
            pieces += one.pieces
            facts.append(EntryFacts(entry.kind, entry.rows, one.byte_count, one.checksum))
        return pieces, facts

    def _land(self, landed: Landed, facts: list[EntryFacts], byte_count: int) -> None:
        readable = [one for one in facts if one.kind in READABLE]
        with self._guard:
            position = self._append_index.stand.position + len(facts)
            after = ReadCursor(
                landed.number_after, landed.chain_after, position, facts[-1].checksum
            )
            self._append_index.add(
                after,
                entries=len(facts),
                byte_count=byte_count,
                rows=sum(one.rows for one in readable),
                readable_bytes=sum(one.byte_count for one in readable),
                parts=landed.parts,
                number=landed.number,
                chain_before=landed.chain_before,
            )

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise Unavailable(self._failure)

    # --- reading -------------------------------------------------------------------------------

    def scan(self, after: int) -> Iterator[tuple[int, int, Entry]]:
        """See Journal.scan. What opening has read is not asked for again."""
        self._check_usable()
        yield from self._entries(after + 1, self._append_index.tail)

    def _entries(self, position: int, tail: int) -> Iterator[tuple[int, int, Entry]]:
        while position <= tail:
            segment, view, mirrored = self._segment_with(position, tail)
            for place in range(position - segment.first, segment.count):
                at = int(segment.offsets()[place]) << 3
                trusted = segment.is_verified(place)
                try:
                    found = entry_format.decode(view, at, trusted=trusted, cipher=self._cipher)
                    if found.head.position != position:
                        raise JournalDamaged(f"not entry {position}")
                except JournalDamaged as damage:
                    if not mirrored:
                        raise
                    log.warning("%s, offset %d: %s; it is read again", segment.path, at, damage)
                    self._mirror.discard(np.array([position], dtype=np.int64))
                    break
                yield position, found.head.epoch, found.entry
                position += 1
                if position > tail:
                    return

    def _segment_with(self, position: int, tail: int) -> tuple[Segment, memoryview, bool]:
        """Where an entry is, its bytes, and whether that is the mirror. What follows up to `tail`
        is read from the server as well, if that has to be asked."""
        listed = self._mirror.listed
        segment = segment_at(listed, position)
        if segment is not None:
            try:
                return segment, self._mirror.load(segment), True
            except (JournalDamaged, OSError) as damage:
                log.warning("%s; it is read again", damage)
                self._mirror.discard(np.array([position], dtype=np.int64))
        later = [one.first for one in self._mirror.listed.segments if one.first > position]
        end = min([tail + 1, *later])
        with self._guard:
            asked = self._append_index.run(position, end, RUN_BYTES_MAX)
        segment = segment_at(self._from_server(asked), position)
        if segment is None:
            raise JournalDamaged(f"{self._place}: entry {position} was given back")
        return segment, segment.memory().view, False

    def _from_server(self, positions: Int64s) -> SegmentList:
        """The entries, read from the server. Raises Fenced, JournalDamaged, Unavailable."""
        known = -1
        while True:
            with self._guard:
                appends = self._append_index.holding(positions)
            try:
                return self._append_cache.segments_with(appends)
            except JournalDamaged:
                # Some may have been freed, and dropped, since the look into the append index.
                if len(appends) == known:
                    self._writer.check_owner()  # the next owner drops what it needs no more
                    raise
                known = len(appends)

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        self._check_usable()
        locators = np.asarray(locators, dtype=np.int64)
        positions = locators >> limits.ROW_BITS
        while True:
            listed = self._mirror.listed
            here = covers(listed, positions)
            try:
                if here.all():
                    return self._mirror.gather(listed, locators, columns)
                mirrored = self._mirror.gather(listed, locators[here], columns)
            except (JournalDamaged, OSError) as damage:
                if not here.any():
                    raise
                log.warning("the copy of %s: %s; it is read again", self._place, damage)
                self._mirror.discard_damaged(listed, positions[here])
                continue
            fetched = self._from_server(positions[~here])
            rest = self._mirror.gather(fetched, locators[~here], columns)
            order = np.argsort(np.concatenate([np.flatnonzero(here), np.flatnonzero(~here)]))
            both = pa.Table.from_batches([mirrored, rest]).combine_chunks().take(order)
            return both.combine_chunks().to_batches(max_chunksize=None)[0]

    def read_here(self, locators: Int64s, columns: Sequence[str]) -> pa.RecordBatch | None:
        """See Journal.read_here. What is damaged here has to be read from the server, too."""
        self._check_usable()
        locators = np.asarray(locators, dtype=np.int64)
        positions = locators >> limits.ROW_BITS
        for listed in (self._mirror.listed, self._append_cache.listed):
            if covers(listed, positions).all():
                with suppress(JournalDamaged, OSError):
                    return self._mirror.gather(listed, locators, columns)
        return None

    # --- giving room back ----------------------------------------------------------------------

    def adopt(self, live_locators: Iterator[Int64s]) -> None:
        """See Journal.adopt."""
        self._check_usable()
        with self._guard:
            self._append_index.adopt(live_locators)
        self._give_back()

    def free(self, locators: Int64s) -> None:
        """See Journal.free."""
        self._check_usable()
        with self._guard:
            self._append_index.free(locators)
        self._give_back()

    def truncate(self, position: int) -> None:
        """See Journal.truncate. What the older kept snapshot still needs stays until it goes."""
        self._check_usable()
        self._truncated = max(self._truncated, position)
        self._give_back()

    def _replayed(self) -> int:
        return min(self._truncated, self._snapshot_objects.kept_position)

    def _give_back(self) -> None:
        limit = self._replayed()
        if not limit:
            return
        with self._guard:
            number = self._append_index.give_back(limit)
            first = self._append_index.first_position
        if number is None:
            return
        self._mirror.forget_before(first)
        if not self._drop_waits:
            self._drop_waits = True
            if self._background is None:
                self._drop()
            else:
                self._background.submit(self._drop)

    def _drop(self) -> None:
        """Have the server forget what is not needed. A failure leaves it for the next time."""
        self._drop_waits = False
        if self._failure is not None:
            return
        try:
            self._erasure.settle(self._append_index)
        except DejaQError as failure:
            log.warning("%s: older records stay for now: %s", self._place, failure)

    def sparse(self) -> Int64s | None:
        """See Journal.sparse: the beginning of the journal, if it is mostly dead."""
        self._check_usable()
        with self._guard:
            pressed = self._erasure.rows(self._append_index)
            return self._append_index.sparse(self._replayed()) if pressed is None else pressed

    # --- erasing -------------------------------------------------------------------------------

    def stored(self, after: int, end: int) -> Iterator[tuple[int, Entry]]:
        """See Journal.stored."""
        self._check_usable()
        self._erasure.check()
        following = max(after + 1, self._append_index.first_position)
        try:
            for position, _, entry in self._entries(following, min(end, self.tail)):
                following = position + 1
                yield position, entry
        except JournalDamaged:
            if following >= self._append_index.first_position:
                raise
            # Dropped since the look into the append index.
            raise Unavailable(f"{self._place}: entries are being given back", 100) from None

    def plan_erasure(self, positions: Int64s, until: int) -> Erasure:
        """See Journal.plan_erasure."""
        self._check_usable()
        return self._erasure.plan(self._append_index, positions, until)

    def press(self, erasure: Erasure) -> bool:
        """See Journal.press."""
        self._check_usable()
        return self._erasure.press(self._append_index, self._snapshot_objects, erasure)

    def press_dead(self, now_ms: int, age_ms: int) -> None:
        """See JournalStore.press_dead. Any thread."""
        self._check_usable()
        self._erasure.press_dead(self._append_index, now_ms, age_ms)

    @property
    def is_pressed(self) -> bool:
        """See Journal.is_pressed."""
        kept = self._snapshot_objects.kept_position
        return self._erasure.is_pressed(self._replayed(), kept)

    @property
    def is_urgent(self) -> bool:
        """See Journal.is_urgent."""
        kept = self._snapshot_objects.kept_position
        return self._erasure.is_urgent(self._replayed(), kept)

    @property
    def has_rows_pressed(self) -> bool:
        """See Journal.has_rows_pressed."""
        return self._erasure.has_rows(self._append_index)

    @property
    def is_asked(self) -> bool:
        """See Journal.is_asked."""
        return self.has_rows_pressed

    # --- room, snapshots, end ------------------------------------------------------------------

    def has_room(self, byte_count: int) -> bool:
        """See Journal.has_room: no while a server's disk is short, and for a while after one had
        no room."""
        self._check_usable()
        return self._no_room == 0 and not self._is_short()

    def byte_count(self) -> int:
        """See Journal.byte_count: of what is kept on the server."""
        return self._append_index.byte_count

    def put_snapshot(self, position: int, meta: str, files: Sequence[SnapshotFile]) -> None:
        """See Journal.put_snapshot."""
        self._check_usable()
        if position > self._append_index.tail:
            raise InternalError(
                f"a snapshot of {position} behind the tail {self._append_index.tail}"
            )
        if not self._is_followed:
            # An owner that was overtaken must not replace snapshots that the next one builds on.
            self._writer.check_owner()
        with self._guard:
            end, stand = self._append_index.stand_after(position)
            base, blocks = self._append_index.blocks(end)
        names = tuple(block.name for block in blocks)
        saved = SnapshotIndex(meta, self._checked.identity, base, stand, names)
        parts = [SnapshotFile(block.name, block.content) for block in blocks]
        self._snapshot_objects.put(position, saved.encode(), [*files, *parts])

    def latest_snapshot(self) -> Snapshot | None:
        """See Journal.latest_snapshot."""
        self._check_usable()
        manifest = self._snapshot_objects.newest()
        if manifest is None:
            return None
        saved = SnapshotIndex.decode(manifest.meta)
        names = tuple(name for name in manifest.parts if name not in saved.blocks)
        return Snapshot(manifest.position, saved.meta, names)

    def read_snapshot_file(self, name: str) -> memoryview:
        """See Journal.read_snapshot_file."""
        self._check_usable()
        return self._snapshot_objects.read(name)

    def close(self) -> None:
        """See Journal.close."""
        if self._failure is None:
            self._failure = f"the journal of {self._place} is closed"
        self._closing.ring()
        self._mirror.close()
        self._log.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()
