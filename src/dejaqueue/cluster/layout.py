"""Which topics lie in which slots, by one version of the catalogue.

Room: cluster. Any thread may ask; what is asked often is remembered.
See: placement.py; node.py, which makes a new one when the catalogue has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.placement import PlacedTopic, slot_of
from dejaqueue.subscriptions import has_ephemeral


class Layout:
    """Topics and their slots.

    Args:
        version: of the catalogue that it is by; -1 = of none.

    Attributes:
        names: what is to be served of each slot though nobody asks, in the order of the catalogue:
            what was used, and is there; and what somebody has to watch, as it has subscriptions
            that end by themselves.
    """

    def __init__(
        self, placed: Mapping[str, PlacedTopic] | None = None, slots: int = 1, version: int = -1
    ) -> None:
        self.version = version
        self.names: dict[int, list[str]] = {}
        self._placed = {} if placed is None else placed
        self._slots = slots
        self._slot_of: dict[str, int] = {}

    @classmethod
    def of(cls, catalogue: ClusterCatalogue, slots: int) -> Layout:
        """That of the catalogue as it is known now."""
        version = catalogue.version  # before it is read: a change meanwhile makes another one
        made = cls(catalogue.placed(), slots, version)
        for row in catalogue.rows():
            is_watched = row.is_used or has_ephemeral(row.topic.subscriptions)
            for name in row.topic.shards if is_watched else ():
                made.names.setdefault(made.slot(name), []).append(name)
        return made

    def slot(self, name: str) -> int:
        """The slot of a topic, or of a shard of one, whether or not it is known."""
        slot = self._slot_of.get(name)
        if slot is None:
            slot = self._slot_of[name] = slot_of(name, self._placed, self._slots)
        return slot
