"""Where a backup is restored into, as the brokers that will serve it look for it there.

Room: cli.
See: broker/backup/restoring.py, PlacePort.
"""

from __future__ import annotations

from collections.abc import Mapping

from dejaqueue.catalogue.state import TopicRow
from dejaqueue.cli.divided_directory import DividedDirectory
from dejaqueue.cluster.placement import slot_of
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.processes import tell_slots
from dejaqueue.journal.segments.shared_store import TopicSlots


class RestoredPlace:
    """A store, and what is known beside it.

    Args:
        divided: the directory of several processes that the store is of; None = it is of none.
    """

    def __init__(self, store: JournalStore, divided: DividedDirectory | None = None) -> None:
        self._store, self._divided = store, divided

    def lays_out(self, rows: Mapping[str, TopicRow], slots: int) -> None:
        """See PlacePort.lays_out."""

        def slots_of(topic: str) -> TopicSlots:
            return TopicSlots(slot_of(topic, rows, slots), rows[topic].topic.spread)

        tell_slots(self._store, slots_of, slots)

    def put_back_keys(self, text: str) -> bool:
        """See PlacePort.put_back_keys. Raises as SharedKeys.put_back."""
        if self._divided is None:
            return False
        self._divided.put_back_keys(text)
        return True
