"""How many entries a start of this broker would have to read again, of all partitions together.

Room: broker. Any worker may call it.
Holds: a partition says what it has in steps of NOTED_ENTRIES, so that it costs next to nothing.
See: maintenance.py, which takes snapshots by it; docs/guides/sizing.md.
"""

from __future__ import annotations

import threading
from typing import Final

NOTED_ENTRIES: Final = 100
"""A difference that is smaller is not noted."""
ENTRIES_MIN: Final = 1_000
"""A partition with fewer takes no snapshot for the sake of others: they are 50 ms of reading."""
ROWS_PER_ENTRY: Final = 250
"""To write so many messages into a snapshot costs what reading an entry does, about: 50 µs."""


class UnreadEntries:
    """The sum over the partitions of a broker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, entries: int) -> None:
        """So many more; fewer, if it is negative."""
        with self._lock:
            self.count += entries


class UnreadShare:
    """What one partition has of them.

    >>> unread = UnreadEntries()
    >>> share = UnreadShare(unread)
    >>> share.note(9_000)
    >>> share.is_too_much(9_000, rows=500, most=10_000), share.is_too_much(9_000, 500, 8_000)
    (False, True)
    """

    def __init__(self, unread: UnreadEntries) -> None:
        self._unread = unread
        self._noted = 0

    def note(self, entries: int) -> None:
        """So many entries of this partition are in no snapshot."""
        more = entries - self._noted
        if not -NOTED_ENTRIES < more < NOTED_ENTRIES:
            self._unread.add(more)
            self._noted = entries

    def is_too_much(self, entries: int, rows: int, most: int) -> bool:
        """Whether a snapshot of this partition is to make the sum smaller.

        Args:
            entries: of the partition, in no snapshot.
            rows: its live messages.
            most: the sum that is allowed.
        """
        enough = max(ENTRIES_MIN, rows // ROWS_PER_ENTRY)
        return entries >= most or (entries >= enough and self._unread.count >= most)

    def end(self) -> None:
        """The partition is served no more."""
        self._unread.add(-self._noted)
        self._noted = 0
