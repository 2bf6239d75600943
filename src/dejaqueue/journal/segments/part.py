"""What a log has of one of its partitions: where its entries stand, and how many rows are live.

Room: journal. Changed under the log's guard; `runs` and `tail` are read by any thread.
Holds: a row that nobody has said to be dead counts as live, so a partition that was not read yet
keeps what it has.
See: log.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dejaqueue.journal.interface import Int64s
from dejaqueue.journal.segments.runs import Runs, RunTable


@dataclass(slots=True)
class Share:
    """Of one segment.

    Attributes:
        rows: live ones.
        byte_count: of its entries, dead or not.
        first, last: positions within the partition.
    """

    rows: int
    byte_count: int
    first: int
    last: int


class Part:
    """Of one partition.

    Attributes:
        number: of the partition.
        tail: position of its last entry within the partition.
        runs: where its entries stand.
        shares: by the first position of the segment.
        replayed: entries of the partition up to here are not needed for any replay.
        append_end: the log's tail after the append that had its last entry.
        appended_bytes: of entries that were made durable since the log was opened.
        adopted: it was said which rows are live.
        is_asked: the log wants it to look for what it can copy forward.
    """

    __slots__ = (
        "adopted",
        "append_end",
        "appended_bytes",
        "is_asked",
        "number",
        "replayed",
        "runs",
        "shares",
        "tail",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.tail = self.replayed = self.append_end = self.appended_bytes = 0
        self.runs = Runs()
        self.shares: dict[int, Share] = {}
        self.adopted = self.is_asked = False

    def add_stored(self, segment: int, table: RunTable, positions: Int64s, log_tail: int) -> int:
        """Runs of a segment, as they were found; return how many rows may be live.

        Args:
            positions: of the log, of the first entry of each run.
        """
        locals_of, counts = table["local"].astype(np.int64), table["count"].astype(np.int64)
        self.runs.add_stored(locals_of, positions, counts)
        last = int(locals_of[-1] + counts[-1]) - 1
        rows, byte_count = int(table["rows"].sum()), int(table["bytes"].sum())
        self.shares[segment] = Share(rows, byte_count, int(locals_of[0]), last)
        self.tail = last
        if int(positions[-1] + counts[-1]) - 1 == log_tail:
            self.append_end = log_tail
        return rows

    def add(self, segment: int, position: int, count: int, rows: int, byte_count: int) -> None:
        """Entries that were appended; `tail` and `append_end` are for the caller to raise."""
        first, last = self.tail + 1, self.tail + count
        self.runs.add(first, position, count)
        share = self.shares.get(segment)
        if share is None:
            self.shares[segment] = Share(rows, byte_count, first, last)
        else:
            share.rows += rows
            share.byte_count += byte_count
            share.last = last
        self.appended_bytes += byte_count

    def take(self, segment: int, rows: int) -> int:
        """Rows of a segment are dead; how many of them were live."""
        share = self.shares.get(segment)
        if share is None:
            return 0
        taken = min(rows, share.rows)
        share.rows -= taken
        return taken

    def set_live(self, segment: int, rows: int) -> int:
        """So many rows of a segment are live; how many more that are than before."""
        share = self.shares.get(segment)
        if share is None:
            return 0
        more = rows - share.rows
        share.rows = rows
        return more

    def forget_segments(self, firsts: list[int], oldest: int) -> None:
        """Segments are no more; `oldest` is the first position of those that are."""
        gone = [self.shares.pop(first) for first in firsts if first in self.shares]
        if gone:
            self.runs.forget_before(oldest)

    def needed_behind(self, floor: int, kept: int = 0) -> int:
        """The log's position of the first entry that a replay needs, 0 if it needs none.

        Args:
            floor: up to here nobody needs any.
            kept: entries of the partition up to here count as not needed, too.
        """
        replayed = max(self.replayed, kept)
        if replayed >= self.tail:
            return 0
        needed = self.runs.position_of(replayed + 1)
        return needed if needed > floor else self.runs.first_behind(floor)

    @property
    def byte_count(self) -> int:
        """Bytes of its entries that are there."""
        return sum(share.byte_count for share in self.shares.values())
