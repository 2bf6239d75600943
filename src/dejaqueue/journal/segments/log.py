"""A log in segment files that the partitions of a shard share: one tail, one chain, one sync.

Each entry names its partition by number, and its position within it. What many partitions want to
append at the same time becomes one `pwritev` and one `fdatasync` into a file that was allocated
before (spare.py). A partition sees its own part alone (journal.py).

Room: journal. One append at a time; any thread may call it.
Holds: an append lies in one segment; what is published is durable; after the first failed sync
nothing is written any more, for none of the partitions.
See: journal.py, the partition's view; room.py, which segments go; recovery.py, runs.py, proof.py;
docs/adr/0036-one-log-for-many-partitions.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import numpy as np

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
from dejaqueue.journal.encryption.clear_budget import ClearBudget
from dejaqueue.journal.format import Encoded, Piece
from dejaqueue.journal.interface import Append
from dejaqueue.journal.segments.clear_text import ClearTexts, WithText
from dejaqueue.journal.segments.files import FULL, FileSystem, OpenFile, bare
from dejaqueue.journal.segments.log_turn import LogTurn
from dejaqueue.journal.segments.part import Part
from dejaqueue.journal.segments.proof import AppendEnd, TailMark, begun_path, has_begun, write_mark
from dejaqueue.journal.segments.recovery import Recovered, recover, segment_name
from dejaqueue.journal.segments.room import LogRoom
from dejaqueue.journal.segments.segment import (
    HEAD_BYTES,
    TAIL_BYTES,
    Segment,
    SegmentHead,
    SegmentList,
    index_bytes,
)
from dejaqueue.journal.segments.spare import SPARE_SUFFIX, Spare, allocate_file

SEGMENT_BYTES: Final = 64 << 20
"""Size of a full-grown segment."""
SEGMENT_BYTES_FIRST: Final = 1 << 20
"""Size of a log's first segment; each next is twice as large, so that small logs take little."""
TOGETHER_BYTES_MAX: Final = 8 << 20
"""Appends of this size in all are written at once; one that is larger goes alone."""
_PAGE: Final = 4096
_ZEROS_BYTES: Final = 1 << 20


def _in_parts(appends: Sequence[Append]) -> Iterator[Sequence[Append]]:
    """What is written at once, by TOGETHER_BYTES_MAX."""
    start = byte_count = 0
    for place, one in enumerate(appends[:-1]):  # nothing depends on the size of the last
        byte_count += sum(entry.byte_count() for entry in one.entries)
        if byte_count >= TOGETHER_BYTES_MAX:
            yield appends[start : place + 1]
            start, byte_count = place + 1, 0
    yield appends[start:]


class ShardLog:
    """The log of one shard. Made by a store; see there for the settings.

    Args:
        identity: of the data directory.
        has_partition: whether there is a partition of this number; entries of others are free.
        ask: wakes partitions, by their numbers: the log could give room back if they took a
            snapshot, or copied their few live rows out of mostly dead segments. Must not block.
        cipher: encrypts entries; None = they are stored as they are.
        clear_budget: of all logs of the store; None = this one has its own.
        turn: of who follows all logs of the store; None = nobody does.

    Attributes:
        parts: what it has of each partition, by the partition's number.
        room: what of it is kept, and for whom.
        guard: over what is in memory, for a moment each.
        turn_seen: see FollowedLog.
        notes: what was found amiss and mended when it was opened, in words for the log.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        *,
        identity: int,
        shard: int,
        segment_bytes: int,
        reserve_bytes: int,
        background: Executor | None,
        has_partition: Callable[[int], bool] = lambda _: True,
        ask: Callable[[list[int]], None] = lambda _: None,
        cipher: Cipher | None = None,
        clear_budget: ClearBudget | None = None,
        turn: LogTurn | None = None,
    ) -> None:
        self.cipher = cipher
        self._turn = LogTurn() if turn is None else turn
        self.turn_seen = 0, 0
        self._scratch = entry_format.Scratch()
        self._clear_texts: ClearTexts | None = None
        if cipher is not None:
            budget = clear_budget or ClearBudget()
            self._clear_texts = ClearTexts(cipher, budget, self._forget_clear)
        self.files, self.directory = files, directory
        self._identity, self._shard = identity, shard
        self._segment_bytes, self._reserve_bytes = segment_bytes, reserve_bytes
        self._background, self._ask = background, ask
        self._appending = threading.Lock()
        """Held by who writes. Taken before `guard`."""
        self._chores: list[Future[None]] = []
        self._failure: str | None = None
        self._is_final, self._room_seen = False, (-1, 0)
        self._spare: Spare | None = None
        files.make_directory(directory)
        for name in files.names(directory):
            if name.endswith(SPARE_SUFFIX):
                files.unlink(directory / name)
        self.parts: dict[int, Part] = {}
        self.room = LogRoom(files, directory, identity, shard, self.parts, self._chore)
        self.room.kept_behind = lambda: self._turn.kept_behind(shard)
        self.guard = self.room.guard
        self._has_begun = has_begun(files, directory)
        recovered = recover(files, directory, identity, shard, self.room.floor, self._clear_texts)
        if self._has_begun and not recovered.segments:
            raise JournalDamaged(f"{directory}: is empty, though there were entries in it")
        self.cut_bytes = recovered.cut_bytes
        self.notes = [*recovered.notes, *self.room.notes]
        self._marked = recovered.mark.position if recovered.mark is not None else 0
        self._marking = self._turning = False
        last = recovered.segments[-1] if recovered.segments else None
        self.tail = last.last if last else 0
        self._chain = last.chain if last else 0
        self._find_parts(recovered, has_partition)
        if self.tail:
            with suppress(OSError):  # it is tried again at the next opening
                self._begin()

    def _find_parts(self, recovered: Recovered, has_partition: Callable[[int], bool]) -> None:
        """What there is of each partition. All its rows count as live until it says which are."""
        live = np.zeros(len(recovered.segments), dtype=np.int64)
        for place, segment in enumerate(recovered.segments):
            table = segment.runs()
            counts = table["count"].astype(np.int64)
            positions = segment.first + np.cumsum(counts) - counts
            order = np.argsort(table["number"], kind="stable")
            numbers, starts = np.unique(table["number"][order], return_index=True)
            bounds = [*starts.tolist(), len(order)]
            for number, start, end in zip(numbers.tolist(), bounds, bounds[1:], strict=False):
                if has_partition(number):
                    runs = order[start:end]
                    rows = self.part(number).add_stored(
                        segment.first, table[runs], positions[runs], self.tail
                    )
                    live[place] += rows
            segment.forget_runs()
        self.room.found(tuple(recovered.segments), live)

    def end_of_turn(self) -> int:
        """Position of the last entry that was published before the turn that it is began."""
        with self.guard:
            number, tail_before = self.turn_seen
            return tail_before if number == self._turn.number else self.tail

    @property
    def listed(self) -> SegmentList:
        """Its segments."""
        return self.room.listed

    def part(self, number: int) -> Part:
        """What there is of a partition."""
        with self.guard:
            return self.parts.setdefault(number, Part(number))

    # --- writing -------------------------------------------------------------------------------

    def append_all(self, appends: Sequence[Append]) -> None:
        """Append for several partitions, each its own entries or none of them, with as few syncs as
        can be. Does not raise: each append has its outcome."""
        for together in _in_parts(appends):
            with self._appending:
                self._append_together(together)

    def _append_together(self, appends: Sequence[Append]) -> None:
        try:
            self._append(appends)
        except ResourceExhausted as full:
            if len(appends) > 1:  # what is small may fit
                for one in appends:
                    self._append_together([one])
            else:
                appends[0].error = bare(full)
        except DejaQError as error:
            for one in appends:
                one.error = one.error or bare(error)
        except Exception as wrong:  # noqa: BLE001 - our bug: who appends is told
            bug = InternalError(f"{self.directory}: {type(wrong).__name__}: {wrong}")
            for one in appends:
                one.error = one.error or bug

    def _append(self, appends: Sequence[Append]) -> None:
        self.check_usable()
        pieces: list[Piece] = []
        written: list[tuple[Append, Part, list[Encoded]]] = []
        chain, tail = self._chain, self.tail
        position, byte_count = tail, 0
        for one in appends:
            part = self.parts[one.journal.number]
            try:
                encoded = self._encode(one, part, position, chain)
            except DejaQError as error:
                one.error = bare(error)
                continue
            for entry in encoded:
                pieces += entry.pieces
                byte_count += entry.byte_count
            chain, position = encoded[-1].checksum, position + len(encoded)
            written.append((one, part, encoded))
        if not written:
            return
        pieces.append(AppendEnd(tail, byte_count, self._chain).encode())
        segment = self._segment_for(position - tail, byte_count, len(written))
        try:
            self._begin()
        except OSError as failure:
            if failure.errno not in FULL:
                self._fail(failure)
            raise ResourceExhausted("no room on the disk of the journal") from failure
        self._write(segment, pieces)
        self._publish(segment, written)
        self._scratch.reset()

    def _encode(self, one: Append, part: Part, position: int, chain: int) -> list[Encoded]:
        if one.after != part.tail:
            raise Fenced(f"the tail of {one.journal} is {part.tail}, not {one.after}")
        if not one.entries:
            raise InternalError("an append of no entries")
        encoded: list[Encoded] = []
        tail, number, local = self.tail, part.number, part.tail
        for place, entry in enumerate(one.entries, 1):
            bytes_of = entry_format.encode(
                entry,
                position + place,
                one.epoch,
                chain,
                tail,
                (number, local + place),
                self.cipher,
                self._scratch,
            )
            chain = bytes_of.checksum
            encoded.append(bytes_of)
        return encoded

    def _segment_for(self, entries: int, byte_count: int, runs: int) -> Segment:
        """The active segment if it has room, else a new one."""
        segments = self.listed.segments
        is_over = self._turning or (bool(segments) and segments[-1].first in self.room.pressed)
        if segments and not is_over and segments[-1].has_room(entries, byte_count, runs):
            return segments[-1]
        return self._roll(entries, byte_count, runs)

    def _begin(self) -> None:
        """Note beside the directory that there are segments in it: it may be lost as a whole."""
        if self._has_begun:
            return
        path = begun_path(self.directory)
        self.files.open(path, create=True).close()
        self.files.sync_directory(path.parent)
        self._has_begun = True

    def _write(self, segment: Segment, pieces: list[Piece]) -> None:
        file, offset = segment.file, segment.used
        assert file is not None
        try:
            file.write(pieces, offset)
        except OSError as failure:
            if failure.errno not in FULL:
                self._fail(failure)
            self._undo(file, offset, sum(len(piece) for piece in pieces))
            raise ResourceExhausted("no room on the disk of the journal") from failure
        try:
            file.sync()
        except OSError as failure:
            self._fail(failure)

    def _undo(self, file: OpenFile, offset: int, byte_count: int) -> None:
        """After a write that lacked room: none of its entries may be there.

        Not even one behind the first: if the first is appended again by itself, it chains.
        """
        try:
            try:
                for at in range(offset, offset + byte_count, _ZEROS_BYTES):
                    file.write([bytes(min(_ZEROS_BYTES, offset + byte_count - at))], at)
            except OSError as failure:
                if failure.errno not in FULL:
                    raise
                # Blocks that are not there hold no entry.
            file.sync()
        except OSError as failure:
            self._fail(failure)

    def _publish(
        self, segment: Segment, written: Sequence[tuple[Append, Part, list[Encoded]]]
    ) -> None:
        with self.guard:
            turn, position, live = self._turn.number, self.tail, 0
            begins_turn = turn != self.turn_seen[0]
            if begins_turn:
                self.turn_seen = turn, position
            for one, part, encoded in written:
                begin, count = segment.used, len(encoded)
                rows = segment.add_all(one.entries, encoded, (part.number, part.tail + 1))
                part.add(segment.first, position + 1, count, rows, segment.used - begin)
                live += rows
                position += count
            if live:
                self.room.live[-1] += live
            self.listed.counts[-1] = segment.count  # from here on readers see them
            self._turn.published(self._shard, turn, self.tail, position)
            self.tail, self._chain = position, segment.chain
            for one, part, encoded in written:
                part.tail += len(encoded)
                part.append_end = position
                one.tail = part.tail
        if begins_turn:
            self._turn.changed()
        segment.count_clear()
        if self._spare is None and 2 * segment.used > segment.byte_count:
            self._prepare_spare(self._next_bytes(segment))

    def _fail(self, failure: OSError) -> NoReturn:
        """The first failed sync or write is final (duty 8)."""
        self._failure = f"{self.directory} failed: {failure.strerror or failure}"
        self._release()
        self._is_final = True
        raise self._unusable(f"{self._failure}; whether it was stored is unknown") from failure

    def check_usable(self) -> None:
        """Raise Unavailable if it is closed or has failed."""
        if self._failure is not None:
            raise self._unusable(self._failure)

    def _unusable(self, text: str) -> Unavailable:
        error = Unavailable(text)
        error.outside = text.replace(str(self.directory), "a log of the journal")
        error.is_final = self._is_final
        return error

    @property
    def has_failed(self) -> bool:
        """True if a sync has failed: it is not opened again before the store is."""
        return self._failure is not None

    # --- the mark of the tail ------------------------------------------------------------------

    def is_proved(self, part: Part) -> bool:
        """Whether damage of what was appended last for a partition would be told from a torn
        append: each append proves those before it, the mark the last one."""
        if part.append_end < self.tail or self._marking or self._marked >= self.tail:
            return True
        return self._failure is not None

    def prove(self) -> None:
        """Leave a durable proof of the tail. Does not wait."""
        with self.guard:
            if self._marking or self._marked >= self.tail or self._failure is not None:
                return
            mark = self._mark()
            self._marking = True

        def work() -> None:
            try:
                write_mark(self.files, self.directory, mark)
                self._marked = mark.position
            finally:
                self._marking = False

        self._chore(work)

    def _mark(self) -> TailMark:
        return TailMark(self._shard, self._identity, self.tail, self._chain)

    # --- segments ------------------------------------------------------------------------------

    def _next_bytes(self, segment: Segment | None) -> int:
        grown = SEGMENT_BYTES_FIRST if segment is None else 2 * segment.byte_count
        return min(self._segment_bytes, max(grown, min(SEGMENT_BYTES_FIRST, self._segment_bytes)))

    def _roll(self, entries: int, byte_count: int, runs: int) -> Segment:
        """Start a new segment durably; the one before is sealed behind it."""
        before = self.listed.segments[-1] if self.listed.segments else None
        needed = HEAD_BYTES + byte_count + index_bytes(entries, runs) + TAIL_BYTES
        needed += -needed % _PAGE
        first = self.tail + 1
        path = self.directory / segment_name(first)
        if self._turning:
            self._drop_spare()
        usual = self._next_bytes(None if self._turning else before)
        file, file_bytes, draft = self._new_file(needed, usual)
        head = SegmentHead(self._shard, self._identity, first, self._chain)
        try:
            file.write([head.encode()], 0)
            if before is None:
                self.room.make_mark()
        except OSError as failure:
            file.close()
            if failure.errno in FULL:
                raise ResourceExhausted("no room on the disk of the journal") from failure
            self._fail(failure)
        try:
            file.sync()
            self.files.rename(draft, path)
            self.files.sync_directory(self.directory)
        except OSError as failure:
            file.close()
            self._fail(failure)
        segment = Segment(path, first, self._chain, file_bytes, self._clear_texts)
        segment.attach(file)
        self._turning = False
        with self.guard:
            self.room.list_segments((*self.listed.segments, segment), np.append(self.room.live, 0))
        if before is not None:
            sealed = before

            def seal() -> None:
                sealed.seal()
                sealed.forget_runs()

            self._chore(seal)
            asked = self.room.settle()
            if asked:
                self._ask([part.number for part in asked])
        return segment

    def _new_file(self, needed: int, usual: int) -> tuple[OpenFile, int, Path]:
        """An allocated file: the spare if there is one, else a new one, small if room is short."""
        spare, self._spare = self._spare, None
        draft = self.directory / f"next{SPARE_SUFFIX}"
        if spare is not None:
            file = spare.take()
            if file is not None and spare.byte_count >= needed:
                return file, spare.byte_count, draft
            if file is not None:
                file.close()
        file_bytes = max(usual, needed)
        while True:
            try:
                return allocate_file(self.files, draft, file_bytes), file_bytes, draft
            except OSError as failure:
                # Not kept in a variable: the cycle of error and frame would keep maps of deleted
                # segments, and so their room on the disk, until the collector comes by.
                if failure.errno not in FULL:
                    self._fail(failure)
                if file_bytes == needed:
                    raise ResourceExhausted("no room on the disk of the journal") from failure
            file_bytes = needed

    def _prepare_spare(self, file_bytes: int) -> None:
        if self.files.spares:
            self._spare = Spare(self.files, self.directory, file_bytes)
            self._spare.chore = self._chore(self._spare.prepare)

    def _drop_spare(self) -> None:
        """Its file stays, until the next one is made in its place or the log is opened."""
        spare, self._spare = self._spare, None
        file = spare.take() if spare is not None else None
        if file is not None:
            file.close()

    def _chore(self, work: Callable[[], None]) -> Future[None]:
        """Run housekeeping in the background; nothing depends on its success."""

        def run() -> None:
            try:
                work()
            except OSError as failure:
                self.chore_failure = failure

        if self._background is None:
            run()
            done: Future[None] = Future()
            done.set_result(None)
            return done
        chore = self._background.submit(run)
        with self.guard:
            self._chores = [*(one for one in self._chores if not one.done()), chore]
        return chore

    chore_failure: OSError | None = None
    """The last housekeeping that failed."""

    # --- giving room back ----------------------------------------------------------------------

    def forget(self, numbers: Callable[[int], bool]) -> None:
        """Partitions of these numbers are no more: their entries are free."""
        with self.guard:
            gone = [number for number in self.parts if numbers(number)]
            self.room.forget([self.parts.pop(number) for number in gone])

    def holds_room(self, part: Part) -> bool:
        """Whether room would be given back if two snapshots more of a partition were stored."""
        with self.guard:
            room = self.room
            return room.is_held_by(part) or room.replays_pressed(part) or self._is_oversized()

    def _is_oversized(self) -> bool:
        """Whether the active segment has room for much and nothing live."""
        segments, live = self.listed.segments, self.room.live
        if not segments or not len(live) or live[-1] > 0:
            return False
        spare = self._spare
        spare_bytes = spare.byte_count if spare is not None else 0
        return segments[-1].byte_count + spare_bytes > self._next_bytes(None)

    def _forget_clear(self, segment: WithText) -> None:
        """There is no room for what is decrypted of a segment; what is read of it next is again."""
        with self.guard:
            segment.clear = None
            self.room.list_segments(self.listed.segments, self.room.live)

    def turn_over(self) -> None:
        """Nothing comes for the moment: go on with less from the next append on, if that helps."""
        with self.guard:
            self._turning = self._is_oversized()

    # --- erasing -------------------------------------------------------------------------------

    def press(self, firsts: Sequence[int], own: Part) -> bool:
        """Have segments gone as soon as can be; True if they are, durably. As LogRoom.press.

        Args:
            own: the partition that asks, which is told, too, where only its snapshots are to go.
        """
        is_gone, asked = self.room.press(firsts)
        self._ask(sorted({part.number for part in asked} | {own.number}))
        return is_gone

    def press_dead(self, now_ms: int, age_ms: int) -> None:
        """Have segments gone with rows that have been dead for so long, as JournalStore says."""
        firsts, unread = self.room.stale(now_ms, age_ms)
        asked = self.room.press(firsts, urgent=False)[1] if firsts else []
        if asked or unread:
            self._ask(sorted({part.number for part in (*asked, *unread)}))

    # --- room, end -----------------------------------------------------------------------------

    def has_room(self, byte_count: int) -> bool:
        """True if producers may append this much; the reserve is left to acks and leases."""
        # Asked once for all that comes between two appends, as the interpreter's lock is let go of.
        tail, left_bytes = self._room_seen[0], self._room_seen[1] - byte_count
        if tail != self.tail or left_bytes < self._reserve_bytes:
            try:
                left_bytes = self.files.free_bytes(self.directory) - byte_count
            except OSError:
                return False
        self._room_seen = self.tail, left_bytes
        if left_bytes < self._reserve_bytes:
            self._turn.kept = None  # an archive that is behind does not keep room that is short
        return left_bytes >= self._reserve_bytes

    def close(self) -> None:
        """Release everything; twice is fine."""
        with self._appending:
            if self._failure is None:
                self._failure = f"the log {self.directory} is closed"
                self._release(marked=True)
            else:
                self._release()

    def _release(self, *, marked: bool = False) -> None:
        self._drop_spare()
        with self.guard:
            chores, self._chores = self._chores, []
        wait(chores)
        if marked:
            with self.guard, suppress(OSError):
                self.room.give_back(settled=True)
                self.room.store_floor(self.room.floor)
        if marked and self._marked < self.tail:
            with suppress(OSError):  # a proof less; nothing else depends on it
                write_mark(self.files, self.directory, self._mark())
        for segment in self.listed.segments:
            segment.close()
