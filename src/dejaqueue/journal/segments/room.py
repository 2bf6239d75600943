"""What of a log is kept, and for whom: live rows, and what replays need.

Room: journal. Changed under `guard`; the log lists its segments here as it makes them.
Holds: a segment goes when it has no live row and no replay needs an entry of it, nor an archive
that is behind (log_turn.py); that its entries are not needed is stored before it goes
(`floor.mark`), so recovery does not miss it; a partition that has not said what is live keeps all
it has.
See: log.py, part.py; docs/adr/0036-one-log-for-many-partitions.md; tests/unit/…/test_room.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from dejaqueue import limits
from dejaqueue.errors import InternalError, Unavailable
from dejaqueue.journal.interface import Int64s
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.part import Part
from dejaqueue.journal.segments.proof import FLOOR_NAME, TailMark, read_mark, write_mark
from dejaqueue.journal.segments.recovery import CUT_SUFFIX
from dejaqueue.journal.segments.segment import Segment, SegmentList

SPARSE_PERCENT: Final = 25
"""A segment with less than this alive is worth copying forward."""


class LogRoom:
    """What of one log is kept.

    Args:
        parts: what the log has of each partition, by the partition's number; it changes.
        chore: runs housekeeping in the background, one after the other.

    Attributes:
        guard: over what is in memory, for a moment each.
        listed: the log's segments.
        live: how many rows of each are live, or may be.
        floor: no replay needs an entry up to this position.
        pressed: first positions of segments that are to go as soon as can be, whatever is live in
            them; replaced when one comes or goes.
        urgent: of these, those that somebody waits for, and no backup is waited for.
        kept_behind: as LogTurn's, of this log; asked with the guard.
        notes: what was damaged of the stored floor, in words.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        identity: int,
        shard: int,
        parts: Mapping[int, Part],
        chore: Callable[[Callable[[], None]], object],
    ) -> None:
        self._files, self._directory = files, directory
        self._identity, self._shard = identity, shard
        self._parts, self._chore = parts, chore
        self.guard = threading.RLock()
        found = read_mark(files, directory, identity, shard, FLOOR_NAME)
        self.floor = self._stored_floor = 0 if found.mark is None else found.mark.position
        self.notes = [found.damaged] if found.damaged else []
        self.pressed: frozenset[int] = frozenset()
        self.urgent: frozenset[int] = frozenset()
        self._dead_since_ms: dict[int, int] = {}
        """By segment, by its first position: since when it is known that rows of it are dead."""
        self._found: frozenset[int] = frozenset()
        self._leaving: set[int] = set()
        """First positions of segments that are not listed any more, whose files are there still."""
        self._shed_bytes: dict[int, int] = {}
        """By segment, by its first position: bytes of rows that are known to have been larger than
        others."""
        self._holder: int | None = None
        """Number of the partition that needs what comes behind the floor."""
        self.kept_behind: Callable[[], int | None] = lambda: None
        self._waits_for_archive = False
        """The floor would be higher if more were archived."""
        self.list_segments((), np.zeros(0, dtype=np.int64))

    def list_segments(self, segments: tuple[Segment, ...], live: Int64s) -> None:
        """These are the log's segments now, the oldest first."""
        self.live = live
        self.listed = SegmentList(segments)

    def found(self, segments: tuple[Segment, ...], live: Int64s) -> None:
        """These segments were there when the log was opened; since when their rows are dead is not
        known."""
        self._found = frozenset(segment.first for segment in segments)
        self.list_segments(segments, live)

    # --- which rows are live -------------------------------------------------------------------

    def _per_segment(self, part: Part, locators: Int64s) -> list[tuple[int, int]]:
        """Places of segments, and how many of these rows of a partition are in each."""
        listed = self.listed
        positions = part.runs.locate(locators, part.tail) >> limits.ROW_BITS
        if not len(positions) or not listed.segments:
            return []
        if np.minimum.reduce(positions) >= listed.segments[-1].first:
            return [(len(listed.segments) - 1, len(positions))]
        places = listed.places(positions)
        there = positions - listed.firsts[places] < listed.counts[places]
        if not there.all():  # not to be taken off the segment before the gap
            places = places[there]
        counts = np.bincount(places + 1)[1:]
        found = np.flatnonzero(counts)
        return list(zip(found.tolist(), counts[found].tolist(), strict=True))

    def free(self, part: Part, locators: Int64s) -> None:
        """These rows of a partition, which were live, are not needed any more."""
        with self.guard:
            wrong = False
            for place, rows in self._per_segment(part, locators):
                taken = part.take(self.listed.segments[place].first, rows)
                self.live[place] -= taken
                wrong |= taken < rows
            if wrong:
                raise InternalError(f"rows of {self._directory} were freed that were not live")
            self.give_back()

    def adopt(self, part: Part, live_locators: Iterator[Int64s]) -> None:
        """These rows of a partition are live, and no others."""
        live: dict[int, int] = {}
        for locators in live_locators:
            with self.guard:
                for place, rows in self._per_segment(part, locators):
                    first = self.listed.segments[place].first
                    live[first] = live.get(first, 0) + rows
        with self.guard:
            for place, segment in enumerate(self.listed.segments):
                self.live[place] += part.set_live(segment.first, live.get(segment.first, 0))
            part.adopted = True
            self.give_back()

    def forget(self, gone: Sequence[Part]) -> None:
        """These partitions are no more: their entries are free."""
        with self.guard:
            for part in gone:
                for place, segment in enumerate(self.listed.segments):
                    self.live[place] += part.set_live(segment.first, 0)
            self.give_back(settled=True)

    # --- the floor -----------------------------------------------------------------------------

    def replayed(self, part: Part, position: int) -> None:
        """A partition needs no entry up to a position of its own for a replay."""
        with self.guard:
            part.replayed = max(part.replayed, position)
            self.give_back(settled=self._holder in {part.number, None})
            if self._shed_bytes:
                for first, _ in self.sparse():
                    part.is_asked |= first in part.shares

    def _find_floor(self) -> None:
        """Up to where entries are not needed for any replay, and who needs the next one."""
        segments = self.listed.segments
        floor, self._holder = segments[-1].last if segments else 0, None
        for part in self._parts.values():
            needed = part.needed_behind(self._stored_floor)
            if needed and needed <= floor:
                floor, self._holder = needed - 1, part.number
        kept = None if self.urgent else self.kept_behind()
        self._waits_for_archive = kept is not None and kept < floor
        if kept is not None and kept < floor:
            # Partitions that are alive wait for backups, and those that are gone for nothing else.
            floor, self._holder = kept, None
        self.floor = max(floor, self._stored_floor)

    def let_archived_go(self) -> None:
        """More is archived than before, or nobody archives any more."""
        if self._waits_for_archive:
            with self.guard:
                self.give_back(settled=True)

    def make_mark(self) -> None:
        """Have room on the disk for the floor, whatever comes. Raises OSError."""
        self._write_mark(self._stored_floor)

    def store_floor(self, floor: int) -> None:
        """Before a segment goes: recovery must not miss it. On a full disk there is room for it.
        Raises OSError."""
        if floor > self._stored_floor:
            self._write_mark(floor)
            self._stored_floor = floor

    def _write_mark(self, floor: int) -> None:
        mark = TailMark(self._shard, self._identity, floor, 0)
        write_mark(self._files, self._directory, mark, FLOOR_NAME)

    # --- giving back ---------------------------------------------------------------------------

    def give_back(self, *, settled: bool = False) -> None:
        """Let segments go that nobody needs.

        Args:
            settled: what replays need may be less than before.
        """
        if settled and len(self.live) > 1:
            self._find_floor()
        dead = self._dead()
        if not dead:
            return
        kept = [place for place, one in enumerate(self.listed.segments) if one not in dead]
        segments, floor = self.listed.segments, self.floor
        self.list_segments(tuple(segments[place] for place in kept), self.live[kept])
        for part in self._parts.values():
            part.forget_segments([one.first for one in dead], self.listed.segments[0].first)
        # Where a segment before a gap ends, recovery cannot tell from where the next one begins.
        before_gaps = [segments[place] for place, behind in pairwise(kept) if behind > place + 1]
        firsts = {segment.first for segment in dead}
        self._leaving |= firsts
        self.pressed -= firsts
        self.urgent -= firsts
        for first in firsts:
            self._shed_bytes.pop(first, None)

        def delete() -> None:
            self.store_floor(floor)
            for segment in before_gaps:
                segment.keep_end(self._files)
            for segment in dead:
                segment.close()
                # No sync of the directory: one that comes back is found without live rows again.
                self._files.unlink(segment.path)
                self._leaving.discard(segment.first)

        self._chore(delete)

    def _dead(self) -> list[Segment]:
        """Sealed segments without a live row that no replay needs."""
        sealed = self.listed.segments[:-1]
        if not sealed or sealed[0].last > self.floor or self.live.all():
            return []
        empty = np.flatnonzero(self.live[:-1] <= 0).tolist()
        return [sealed[place] for place in empty if sealed[place].last <= self.floor]

    # --- what is to go whatever is live in it --------------------------------------------------

    def segments_with(self, positions: Int64s) -> list[Segment]:
        """The segments with these entries, given by the log's positions; what is gone has none."""
        with self.guard:
            segments, places = self.listed.segments, self.listed.places(positions)
            lasts = np.array([-1, *(segment.last for segment in segments)], dtype=np.int64)
            there = (places >= 0) & (positions <= lasts[places + 1])
            return [segments[place] for place in np.unique(places[there]).tolist()]

    def press(self, firsts: Sequence[int], *, urgent: bool = True) -> tuple[bool, list[Part]]:
        """Segments are to go as soon as can be, and what was cut off as torn with them.

        Args:
            firsts: their first positions.
            urgent: somebody waits for it: backups are not waited for.

        Returns:
            Whether none of them is there any more, durably; else the partitions because of which
            they are.

        Raises:
            Unavailable: a file could not be deleted.
        """
        with self.guard:
            wanted = set(firsts)
            there = {segment.first for segment in self.listed.segments if segment.first in wanted}
            self.pressed |= there
            if urgent:
                self.urgent |= there
            self.give_back(settled=True)
            is_gone = not (wanted & (self.pressed | self._leaving))
            asked = [
                part
                for part in self._parts.values()
                if self.replays_pressed(part) or self.has_rows_pressed(part)
            ]
        if is_gone and urgent:
            self._settle_deletions()
        return is_gone, asked

    def stale(self, now_ms: int, age_ms: int) -> tuple[list[int], list[Part]]:
        """Segments, by their first positions, with rows that have been dead for so long, or may
        have been; and partitions that have not said yet which of their rows are."""
        with self.guard:
            since_ms = self._dead_since_ms
            listed = {segment.first for segment in self.listed.segments}
            for first in since_ms.keys() - listed:
                del since_ms[first]
            for segment, live in zip(self.listed.segments, self.live.tolist(), strict=True):
                if segment.readable_rows > live:
                    first_ms = now_ms - age_ms if segment.first in self._found else now_ms
                    since_ms.setdefault(segment.first, first_ms)
            unread = [
                part
                for part in self._parts.values()
                if not part.adopted and not self._found.isdisjoint(part.shares)
            ]
            return [first for first, ms in since_ms.items() if now_ms - ms >= age_ms], unread

    def _settle_deletions(self) -> None:
        """Nothing of what was deleted comes back; nor is there what was cut off as torn, and kept:
        nobody knows what is in it."""
        names = self._files.names(self._directory)
        try:
            for name in (name for name in names if name.endswith(CUT_SUFFIX)):
                self._files.unlink(self._directory / name)
            self._files.sync_directory(self._directory)
        except OSError as failure:
            raise Unavailable(f"{self._directory}: {failure.strerror}", 1_000) from failure

    def replays_pressed(self, part: Part, *, kept: int = 0, urgent: bool = False) -> bool:
        """Whether a pressed, or an urgent, segment is there because of the replay of a partition;
        or because nobody appends: then who did last is to.

        Args:
            kept: entries of the partition up to here count as needed for no replay, though they may
                stay for a backup.
        """
        wanted = self.urgent if urgent else self.pressed
        if not wanted:
            return False
        with self.guard:
            active = self.listed.segments[-1]
            if active.first in wanted and part.append_end >= active.last:
                return True
            lasts = [one.last for one in self.listed.segments if one.first in wanted]
            needed = part.needed_behind(self._stored_floor, kept) if lasts else 0
            return bool(lasts) and 0 < needed <= lasts[-1]

    def has_rows_pressed(self, part: Part) -> bool:
        """Whether live rows of a partition lie in a pressed segment."""
        pressed = self.pressed
        if not pressed:
            return False
        with self.guard:
            shares = (part.shares.get(first) for first in pressed)
            return any(share is not None and share.rows > 0 for share in shares)

    # --- who keeps room ------------------------------------------------------------------------

    def settle(self) -> list[Part]:
        """A segment is full: give back what can be, and note how far that is.

        Returns:
            Partitions that keep room which they may not know of, as they may be quiet. They are
            marked as asked.
        """
        with self.guard:
            self.give_back(settled=True)
            floor = self.floor
            sparse = [first for first, _ in self.sparse()]
            asked = [part for part in self._parts.values() if self._is_wanted(part, sparse)]
        self._chore(lambda: self.store_floor(floor))
        for part in asked:
            part.is_asked = True
        return asked

    def _is_wanted(self, part: Part, sparse: Sequence[int]) -> bool:
        return self.is_held_by(part) or any(first in part.shares for first in sparse)

    def is_held_by(self, part: Part) -> bool:
        """Whether a replay of a partition is a reason that a segment without live rows stays."""
        empty = np.flatnonzero(self.live[:-1] <= 0)
        if not len(empty):
            return False
        needed = part.needed_behind(self._stored_floor)
        return 0 < needed <= self.listed.segments[int(empty[-1])].last

    def shed(self, positions: Int64s, byte_counts: Int64s) -> None:
        """Rows of so many bytes at these positions of the log are freed."""
        with self.guard:
            segments, places = self.listed.segments, self.listed.places(positions)
            for place in np.unique(places[places >= 0]).tolist():
                first = segments[place].first
                more = int(byte_counts[places == place].sum())
                self._shed_bytes[first] = self._shed_bytes.get(first, 0) + more

    def sparse(self) -> list[tuple[int, int]]:
        """First position and live rows of segments that are mostly dead, or are to go, oldest
        first; by the share of bytes that live rows take, as their average says."""
        with self.guard:
            found: list[tuple[int, int]] = []
            for segment, live in zip(self.listed.segments[:-1], self.live.tolist(), strict=False):
                if segment.first in self.pressed and live > 0:
                    found.append((segment.first, live))
                    continue
                if segment.last > self.floor or live <= 0 or not segment.readable_rows:
                    continue
                live_bytes = segment.readable_bytes * live // segment.readable_rows
                left_bytes = segment.readable_bytes - self._shed_bytes.get(segment.first, 0)
                live_bytes = min(live_bytes, left_bytes)
                if 100 * live_bytes < SPARSE_PERCENT * segment.used:
                    found.append((segment.first, live))
            return found
