"""PartitionState: everything that a partition is, in one place.

Room: engine; pure, memory only. Written by apply.py alone.
Holds: what `invariants.check` says; two states after the same commands have the same hash.
See: apply.py for what changes it, state_hash.py for what of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dejaqueue.engine.commands import Int64s
from dejaqueue.engine.keys import KeyIndex
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.leases import Leases
from dejaqueue.engine.producers import Producers
from dejaqueue.engine.runs import Mask, SortedRuns
from dejaqueue.engine.table import DONE, SCHEDULED, MessageTable


@dataclass(slots=True)
class Counts:
    """How many messages are in a state now, and how often things happened since the first.

    Attributes:
        scheduled, leased: messages in that state; a lease that ended counts as leased until the
            next command.
        enqueued: messages that ever came in.
        delivered: rows handed out, `redelivered` of them not for the first time.
        acked, nacked, extended, moved, cancelled: rows for which that was done.
        expired: leases of rows that ended unsettled.
        relocated: rows copied forward.
    """

    scheduled: int = 0
    leased: int = 0
    enqueued: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    extended: int = 0
    moved: int = 0
    cancelled: int = 0
    expired: int = 0
    relocated: int = 0

    @property
    def live(self) -> int:
        """Messages that are not done."""
        return self.scheduled + self.leased


@dataclass(slots=True)
class PartitionState:
    """The parts of a partition.

    Attributes:
        now_ms: time of the last command.
        epoch: number of the ownership, 0 before the first.
        slab_files: snapshot file of each slab (numbered from sequence 0) that has one.
        snapshot_number: snapshots planned so far.
    """

    layout: Layout = STANDARD
    now_ms: int = 0
    epoch: int = 0
    counts: Counts = field(default_factory=Counts)
    table: MessageTable = field(init=False)
    order: SortedRuns = field(init=False)
    leases: Leases = field(init=False)
    keys: KeyIndex = field(init=False)
    producers: Producers = field(default_factory=Producers)
    slab_files: dict[int, str] = field(default_factory=dict)
    snapshot_number: int = 0

    def __post_init__(self) -> None:
        self.table = MessageTable(self.layout)
        self.order = SortedRuns(self.layout)
        self.leases = Leases(self.layout)
        self.keys = KeyIndex(self.layout)

    def is_due(self, keys: Int64s, sequences: Int64s) -> Mask:
        """Which of these entries of the order index are alive: scheduled, for that time."""
        table = self.table
        places = table.places(sequences)
        mask: Mask = (table.dues_ms[places] == keys) & (table.states[places] == SCHEDULED)
        return mask

    def is_live(self, sequences: Int64s) -> Mask:
        """Which of these messages are not done."""
        mask: Mask = self.table.states[self.table.places(sequences)] != DONE
        return mask


def new_sequences(first_sequence: int, count: int) -> Int64s:
    """The sequences from `first_sequence` on."""
    return np.arange(first_sequence, first_sequence + count, dtype=np.int64)
