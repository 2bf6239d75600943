"""StrandTail: what the strands of several processes have behind a backup, while it is restored.

As ArchiveTail, whose entries are those of one chain. Pieces are read once, strand by strand, into a
file; when all are known, the last cut that they have whole says how far to go in each log.

Room: broker. A temporary file.
Holds: each entry is there once, though two strands may have it; entries of a log follow each other
from the backup to the cut, or the restore is refused with the log's name.
See: archive_tail.py; backup/strands.py, which cut counts; restoring.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dejaqueue.backup.log_pieces import owned_entries
from dejaqueue.backup.strands import StrandIndex, pieces_of, strands_of
from dejaqueue.broker.backup.archive_tail import ArchiveTail
from dejaqueue.connections.bucket import Bucket
from dejaqueue.journal.segments.log_turn import LogSlice


class _Place(NamedTuple):
    """Where the content of a slice is in the file."""

    after: int
    last: int
    start: int
    end: int
    what: str


class StrandTail(ArchiveTail):
    """What is behind a backup of several processes.

    Attributes:
        number: the instant of the cut in milliseconds, which tells it from others.
        reach_ms: the instant of the last cut that there is; 0 = there is none.
        clocks: how many clocks gave its entries their times: of several, no instant between two
            cuts is one moment.
    """

    clocks = 1
    reach_ms = 0

    def read_strands(
        self,
        bucket: Bucket,
        *,
        until_ms: int | None,
        last: int | None,
        damaged: Callable[[str], None] | None,
    ) -> None:
        """Read the pieces.

        Args:
            until_ms: up to the first cut that is not before this instant; where several clocks gave
                entries their times, up to the last that is not behind it; None = all.
            last: `number` of the last cut to go to; None = of all.
            damaged: told what is damaged or missing, and nothing behind that is read of its strand
                or log; None = it is raised.

        Raises:
            JournalDamaged, Unavailable.
        """
        manifest = self._manifest
        index, places = StrandIndex(manifest), dict[str, list[_Place]]()
        for strand, piece in pieces_of(strands_of(bucket, manifest.chain), damaged):
            index.add(piece)
            self.data_keys |= piece.data_keys
            for one in piece.slices:
                start, self._file_bytes = self._file_bytes, self._file_bytes + len(one.content)
                self._file.write(one.content)
                what = strand.path(piece.number)
                place = _Place(one.after, one.last, start, self._file_bytes, what)
                places.setdefault(one.log, []).append(place)
        covered = index.covered(damaged)
        newest = index.last_cut(covered, None, last)
        if newest is None:
            return
        self.reach_ms, self.clocks = newest.at_ms, max(manifest.clocks, index.clocks)
        if self.clocks == 1:
            cut = index.last_cut(covered, until_ms, last)
        else:
            bounds = [one for one in (until_ms, last) if one is not None]
            cut = index.last_cut(covered, None, min(bounds, default=None))
        if cut is None:
            return
        self.at_ms = self.number = cut.at_ms
        for log, found in places.items():
            self._take(log, sorted(found), cut.ends.get(log, 0))

    def _take(self, log: str, places: list[_Place], end: int) -> None:
        """Have the entries of a log up to a position, each once."""
        at = 0
        for place in places:
            if place.last <= at or place.after >= end:
                continue
            view = self._view()[place.start : place.end]
            one = LogSlice(log, place.after, place.last, view)
            position, start = place.after, place.start
            for number, local, stored in owned_entries(one, place.what):
                position, stop = position + 1, start + len(stored)
                if at < position <= end and self._is_new(log, number, local):
                    self._logs[number] = log
                    self._add(number, start, stop)
                start = stop
            at = place.last
