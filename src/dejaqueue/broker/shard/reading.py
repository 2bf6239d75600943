"""The state of a partition as its journal says it, read in one go or in two.

    reader = StateReader(0, journal)            the snapshot
    reader.read_on(listener)                    what was appended since
    reader.take_over()                          … and what the owner before appended meanwhile
    reader.read_on(listener)

Room: broker. Of one thread at a time.
Holds: a state that was read in two goes is the one that one go would have given: what comes in
between is read, or everything is read anew.
See: opening.py, whose readings end with a new epoch; topic/reading_ahead.py, which reads what
another broker serves still; docs/adr/0103.
"""

from __future__ import annotations

from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.view_snapshots import restore_views
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Journal


class StateReader:
    """Reads a partition's state.

    Args:
        number: of the partition.
        journal: open; it is the caller's to close.

    Attributes:
        views: the state behind the entry `tail`.
        read_from: position of the snapshot, 0 = there was none.
        ahead: position up to which it was read while another broker served the partition.
    """

    views: PartitionViews

    def __init__(self, number: int, journal: Journal) -> None:
        self._number, self.journal = number, journal
        self.ahead = 0
        self.restart()

    def restart(self) -> None:
        """Be at the snapshot again. Raises JournalDamaged, Unavailable."""
        snapshot = self.journal.latest_snapshot()
        self.read_from = self.tail = 0
        if snapshot is None:
            self.views = PartitionViews(Engine(self._number))
        else:
            self.views = restore_views(snapshot.meta, self.journal.read_snapshot_file)
            self.read_from = self.tail = snapshot.position

    def read_on(self, listener: Listener) -> None:
        """Read the entries that the journal knows of, and tell of each. Raises as `restart`."""
        for position, _epoch, entry in self.journal.scan(self.tail):
            effects = self.views.apply(entries.to_command(entry, position))
            listener.replayed(position, entry, effects)
            self.tail = position

    def follow(self) -> None:
        """Know of what the owner has appended since. Raises as `restart`."""
        self.journal.follow()

    def take_over(self) -> bool:
        """Know of what the owner before has appended since; False: read it all anew, by another
        journal. Raises Unavailable."""
        self.ahead = self.tail
        try:
            return self.journal.take_over()
        except JournalDamaged:  # most likely it was dropped; who opens the journal anew finds out
            return False
