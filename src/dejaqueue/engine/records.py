"""Small records of a partition's state: counts, messages that died together, staged transactions.

Room: engine; pure, memory only.
See: state.py, which has them; snapshot.py, which stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dejaqueue.engine.arrays import Int64s


@dataclass(slots=True)
class Counts:
    """How many messages are in a state now, and how often things happened since the first.

    Attributes:
        scheduled, leased, dead, staged, staged_acks: messages in that state; a lease that ended
            counts as leased until the next command.
        enqueued: messages that ever came in, staged ones included.
        delivered: rows handed out, `redelivered` of them not for the first time.
        acked, nacked, extended, moved, cancelled: rows for which that was done.
        expired: leases of rows that ended unsettled.
        outlived: messages that died because their own time (`expires`) was over.
        buried: dead messages that arrived in their dead-letter topic.
        aborted: staged messages of transactions that were aborted.
        relocated: rows copied forward.
        replayed: messages that were done and came back.
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
    dead: int = 0
    staged: int = 0
    staged_acks: int = 0
    outlived: int = 0
    buried: int = 0
    aborted: int = 0
    replayed: int = 0

    @property
    def live(self) -> int:
        """Messages that are not done."""
        return self.scheduled + self.leased + self.dead + self.staged + self.staged_acks


@dataclass(slots=True)
class DeadGroup:
    """Messages that died in one command, for one reason: they travel together.

    Attributes:
        reason: why, for the reader of the dead letter.
        now_ms: when.
        destination: the topic they go to; "" = the dead-letter topic.
    """

    sequences: Int64s
    reason: str
    now_ms: int
    destination: str = ""


@dataclass(slots=True)
class Staged:
    """What a transaction staged in this partition.

    Attributes:
        until_ms: when its home is to be asked, if it was not decided by then.
        enqueued: sequences of its messages, in parts.
        acked: sequences of the messages it acks, in parts.
        replaced: sequences of messages that go when it is committed, in parts.
    """

    until_ms: int
    enqueued: list[Int64s] = field(default_factory=list)
    acked: list[Int64s] = field(default_factory=list)
    replaced: list[Int64s] = field(default_factory=list)
