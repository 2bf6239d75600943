"""Which topics lie in which slots, by one version of the catalogue.

Room: cluster. Any thread may ask; what is asked often is remembered.
Holds: what `after` makes of the changes since is what `of` makes of all topics.
See: placement.py; node.py, which makes a new one when the catalogue has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from dejaqueue.catalogue.state import TopicRow
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.placement import PlacedTopic, hashed_slot, slot_of
from dejaqueue.subscriptions import has_ephemeral

_Served = tuple[tuple[int, str], ...]
"""What is to be served of a slot: numbers of topics, which rise in the order of the catalogue, and
names."""


class Layout:
    """Topics and their slots.

    Args:
        version: of the catalogue that it is by; -1 = of none.
    """

    def __init__(
        self, placed: Mapping[str, PlacedTopic] | None = None, slots: int = 1, version: int = -1
    ) -> None:
        self.version = version
        self._placed = {} if placed is None else placed
        self._slots = slots
        self._served: dict[int, _Served] = {}
        self._slot_of: dict[str, int] = {}
        self._movers: set[str] = set()
        """Topics on which it depends where others lie."""

    @property
    def names(self) -> dict[int, list[str]]:
        """What is to be served of all slots; see `served`."""
        return {slot: self.served(slot) for slot in self._served}

    def served(self, slot: int) -> list[str]:
        """What is to be served of a slot though nobody asks, in the order of the catalogue: what
        was used, and is there; and what somebody has to watch, as it has subscriptions that end by
        themselves."""
        return [name for _, name in self._served.get(slot, ())]

    @classmethod
    def of(cls, catalogue: ClusterCatalogue, slots: int) -> Layout:
        """That of the catalogue as it is known now. Cost: some microseconds for each topic."""
        version = catalogue.version  # before it is read: a change meanwhile makes another one
        made = cls(catalogue.placed(), slots, version)
        served: dict[int, list[tuple[int, str]]] = {}
        for row in catalogue.rows():
            if made._moves_others(row):
                made._movers.add(row.topic.name)
            for slot, name in made._of_row(row):
                served.setdefault(slot, []).append((row.number, name))
        made._movers.update(filter(made._is_mover, catalogue.leaving()))
        made._served = {slot: tuple(found) for slot, found in served.items()}
        return made

    def after(self, catalogue: ClusterCatalogue, slots: int) -> Layout:
        """That of the catalogue as it is known now, this one being that of an earlier version.

        Cost: some microseconds for each topic that has changed; what `of` costs, if that was too
        long ago, or where others lie may have changed.
        """
        version = catalogue.version  # before it is asked what has changed; see `of`
        changed = catalogue.changed_since(self.version) if self.version >= 0 else None
        if changed is None or any(n in self._movers or self._is_mover(n) for n in changed):
            return Layout.of(catalogue, slots)
        made = Layout(catalogue.placed(), slots, version)
        # Where they lie has not changed: they share what they remember.
        made._slot_of, made._movers, made._served = self._slot_of, self._movers, dict(self._served)
        for name in sorted(changed):
            made._replace(name, catalogue.row(name))
        return made

    def _replace(self, name: str, row: TopicRow | None) -> None:
        """Serve a topic by this row; None = it is not there."""
        slot = self.slot(name)  # it has no shards
        served = [one for one in self._served.get(slot, ()) if one[1] != name]
        if row is not None and _is_served(row):
            served = sorted([*served, (row.number, name)])
        self._served[slot] = tuple(served)
        if not served:
            del self._served[slot]

    def _of_row(self, row: TopicRow) -> list[tuple[int, str]]:
        names = row.topic.shards if _is_served(row) else ()
        return [(self.slot(name), name) for name in names]

    def _is_mover(self, name: str) -> bool:
        row = self._placed.get(name)
        return row is not None and self._moves_others(row)

    def _moves_others(self, row: PlacedTopic) -> bool:
        """True if others lie elsewhere than if this topic were not there, or it has shards."""
        topic = row.topic
        is_plain = topic.spread == 1 and not topic.dead_letter
        return not is_plain or row.start != hashed_slot(topic.name, self._slots)

    def slot(self, name: str) -> int:
        """The slot of a topic, or of a shard of one, whether or not it is known."""
        slot = self._slot_of.get(name)
        if slot is None:
            slot = self._slot_of[name] = slot_of(name, self._placed, self._slots)
        return slot


def _is_served(row: TopicRow) -> bool:
    return row.is_used or has_ephemeral(row.topic.subscriptions)
