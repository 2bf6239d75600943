"""ColdIndex: which payloads of a partition are cold, by the object that has them.

What is true is in the journal: rows that refer to an object. This is what is known of it in memory,
8 bytes for each row; it is found again when the partition was read.

Room: broker. On the partition's worker alone.
Holds: while `is_complete`, every live row that refers to an object is among its sequences.
See: cold_chore.py, which keeps it; calls/erasure.py and topic/payload_collector.py, which ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.table import DONE, SCHEDULED
from dejaqueue.engine.views import PartitionViews
from dejaqueue.schema.references import Reference


@dataclass(slots=True)
class ColdObject:
    """One object.

    Attributes:
        whole: refers to all of it.
        sequences: of messages that are in it, each once.
    """

    whole: Reference
    sequences: Int64s


@dataclass(slots=True)
class ColdIndex:
    """The objects of a partition.

    Attributes:
        objects: by name.
        is_complete: all rows were looked through since the partition was read.
        is_wanted: there are such objects, whether or not the topic has any more made.
        called: names of objects whose rows are to come back at once, whenever they are due.

    >>> index = ColdIndex()
    >>> index.add(Reference("a/b/cold-c", 8, b""), np.array([3, 5]))
    >>> index.row_count
    2
    """

    objects: dict[str, ColdObject] = field(default_factory=dict)
    is_complete: bool = False
    is_wanted: bool = False
    called: set[str] = field(default_factory=set)

    def add(self, whole: Reference, sequences: Int64s) -> None:
        """These messages, which were not known to be in it, are."""
        one = self.objects.get(whole.name)
        if one is None:
            self.objects[whole.name] = ColdObject(whole, sequences)
        else:
            one.sequences = np.concatenate([one.sequences, sequences])

    @property
    def row_count(self) -> int:
        """Messages that are in an object, as far as is known."""
        return sum(one.sequences.size for one in self.objects.values())


def needed_ms(views: PartitionViews, sequences: Int64s) -> Int64s:
    """When each message is needed first in any view: when it is due, 0 of what is leased, dead or
    staged; INSTANT_MS_MAX + 1 of what every view is done with, retained or not."""
    found = np.full(sequences.size, limits.INSTANT_MS_MAX + 1, dtype=np.int64)
    for engine in views.engines():
        states = engine.states(sequences)
        theirs = np.where(states == SCHEDULED, engine.dues(sequences), 0)
        found = np.where(states == DONE, found, np.minimum(found, theirs))
    return found
