"""One message at once: leased without a consumer, and found by its name.

Room: broker. All of it runs on the partition's worker (ServedTopic.change).
Holds: who leases at once gets an answer at once, also if nothing is due; what was leased so belongs
to no session, and comes back when its lease ends.
See: http/doq, which serves callers that know nothing but a message's name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.consumers.row_reader import read_stored
from dejaqueue.broker.partition.keys import find_in
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Ack, Lease
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.model import Assignment, MessageState, unpack_id
from dejaqueue.schema import packing


def lease_now(core: PartitionCore, *, lease_ms: int = 0, done: bool = False) -> Push | None:
    """Lease the first message that is due; None if none is, or the topic is paused.

    Args:
        lease_ms: 0 = the topic's.
        done: ack it in the same step (at most once).

    Raises:
        Refused: the topic is exclusive, so that its consumers alone have its messages.
    """
    topic = core.topic()
    if topic.assignment is Assignment.EXCLUSIVE:
        raise Refused(f"topic {topic.name} is exclusive: it is read by its consumers alone")
    if topic.paused:
        return None
    now_ms, position = core.now_ms(), core.next_position()
    end_ms = now_ms + (lease_ms or topic.lease_ms)
    leased = core.apply_lease(Lease(now_ms, position, now_ms, 1, end_ms))
    if leased is None:
        return None
    if done:
        core.apply(Ack(now_ms, position))
    rows_max, payloads = limits.DISPATCH_ROWS_MAX, core.payloads
    push = Push(core.number, core.journal, leased, rows_max, done, payloads=payloads)
    if not done:
        core.unread.add(push)
    return push


@dataclass(frozen=True, slots=True)
class Name:
    """What a message may be called.

    Attributes:
        id: the id that the broker gave it, if it has no key.
        keys: or one of these is its key.
    """

    id: int
    keys: tuple[str, ...]

    def homes(self, topic: ServedTopic) -> list[int]:
        """The partitions it may be in."""
        counts = topic.route.counts
        if counts[-1] == 1:
            return [0]
        homes = {unpack_id(self.id)[0]}
        for count in counts:
            homes.update(topic.partitions.homes(self.key_hashes, count).tolist())
        return sorted(home for home in homes if home < counts[-1])

    @property
    def key_column(self) -> pa.StringArray:
        """The keys, utf8, shape (n,)."""
        return pa.array(self.keys, pa.utf8())

    @property
    def key_hashes(self) -> Int64s:
        """Their hashes, int64 array, shape (n,)."""
        return hash_column(text_column(self.key_column))


def find(core: PartitionCore, name: Name) -> int | None:
    """The sequence of the live message of this name in a partition; None = it has none.

    Raises:
        BadRequest: there are two, one called so by its key, one by its id.
    """
    keyed = find_in(core, name.key_column, name.key_hashes)
    sequences = [] if keyed is None else [int(sequence) for sequence in keyed if sequence >= 0]
    partition, sequence = unpack_id(name.id)
    if partition == core.number and sequence not in sequences and core.engine.is_keyless(sequence):
        sequences.append(sequence)
    if len(sequences) > 1:
        raise BadRequest("id", "the name of one message", f"{name.id}: {len(sequences)} have it")
    return sequences[0] if sequences else None


def is_leased(core: PartitionCore, sequence: int) -> bool:
    """True while somebody's lease on the message has not ended."""
    sequences = np.array([sequence], dtype=np.int64)
    engine = core.engine
    in_lease = engine.states(sequences)[0] == MessageState.LEASED
    return bool(in_lease and engine.dues(sequences)[0] > core.now_ms())


def read_headers(core: PartitionCore, sequence: int) -> dict[str, str]:
    """The headers that a live message was sent with. Raises RowsAwaited."""
    locators = core.engine.locators(np.array([sequence], dtype=np.int64))
    column = read_stored(core.stored, locators, ("headers",)).column(0)
    if column.null_count:
        return {}
    return dict(packing.unpack_headers(column).to_pylist()[0] or ())
