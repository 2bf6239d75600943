"""Messages of SQS on their partition: deleted after their lease, recognised when sent again.

Room: broker. What takes a `PartitionCore` runs on its worker; `delete_lapsed` and `find_repeat` are
for any thread.
Holds: a message is deleted only if nobody received it since (rule 4: a lease that ended gives no
right to a message that somebody else has).
See: http/sqs/messages.py; rule 10 for what producers are remembered by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np

from dejaqueue.access.senders import Sender
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.commands import Cancel
from dejaqueue.model import MessageState, pack_id

Row = tuple[int, int]
"""Sequence and attempt."""


def delete_lapsed(topic: ServedTopic, partition: int, rows: Sequence[Row]) -> Future[list[bool]]:
    """Delete messages whose lease has ended, if nobody has received them since.

    Returns:
        For each row whether it is gone by this, when that is durable.
    """
    return topic.change(partition, partial(_delete_lapsed, rows))


def _delete_lapsed(rows: Sequence[Row], core: PartitionCore) -> list[bool]:
    sequences = np.array([sequence for sequence, _ in rows], dtype=np.int64)
    attempts = np.array([attempt for _, attempt in rows], dtype=np.uint16)
    states = core.engine.states(sequences)
    waits = (states == MessageState.SCHEDULED) | (states == MessageState.LEASED)
    waits[waits] = core.engine.attempts(sequences[waits]) == attempts[waits]
    chosen = np.flatnonzero(waits)
    gone = np.zeros(len(rows), dtype=np.bool_)
    if chosen.size:
        effects = core.apply_unnamed(Cancel(core.now_ms(), sequences[chosen]))
        gone[chosen] = True if effects.statuses is None else effects.statuses == 0
    return [bool(one) for one in gone]


Match = Callable[[int], bool]
"""Says whether a batch number is that of the message that is sent again."""


def find_repeat(
    topic: ServedTopic, partition: int, sender: Sender, producer: str, match: Match
) -> Future[tuple[int, int] | None]:
    """The batch of one message that a producer sent, of those that are remembered (rule 10).

    Returns:
        Its number and the id of its message; None = there is none.
    """
    return topic.look(partition, partial(_find_repeat, sender.producer(producer), match))


def _find_repeat(producer: str, match: Match, core: PartitionCore) -> tuple[int, int] | None:
    for number, answer in core.engine.answers_of(producer).items():
        if match(number):
            return number, pack_id(core.number, answer.first_sequence)
    return None
