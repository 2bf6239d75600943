"""Who hears of what is in a partition's journal: once as it is read, then as it becomes durable.

Room: broker. A port: the recorder of history is behind it.
Holds: each entry is told once in the life of a reading, in the order of the journal, and never
before it is durable; who listens does not block.
See: opening.py and commit.py, which tell; history/recorder.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from dejaqueue.broker.consumers.dispatch import Consumer, Push
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.journal.interface import Entry
from dejaqueue.model import Topic


class Listener:
    """Hears of one partition's entries; by itself it does nothing with what it hears."""

    def reading(self, topic: Topic, engine: Engine, position: int) -> None:
        """The journal is read from behind this position on; the engine is as it was there."""

    def replayed(self, position: int, entry: Entry, effects: Effects) -> None:
        """This entry was read, and applied."""

    def durable(
        self,
        first: int,
        last: int,
        changes: Sequence[EntryChanges],
        pushes: Sequence[tuple[Consumer, Push]],
    ) -> None:
        """The entries from `first` to `last` are durable, their leases pushed. On the thread that
        appended."""

    def roll(self) -> Future[None] | None:
        """Finish what was begun to be written of it, so that others can read it; done when that is
        done, or has failed. None: nothing is written."""
        return None
