"""Move and cancel: messages named by id or by key get other fields, or go.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: of a sender who is limited to its own messages another one's is as one that never was; a row
that names nothing is answered as such, and the others are done.
See: keys.py for names that are keys; rules 6, 7 and 11.
"""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.keys import find_in
from dejaqueue.broker.partition.requests import RenameRequest
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Cancel, Move
from dejaqueue.wire.frames import Reply


def rename(core: PartitionCore, inbox: Inbox, request: RenameRequest) -> None:
    """Apply a move or a cancel, and answer with a status for each row."""
    sequences = _sequences(core, request)
    if request.owner is not None:
        sequences = np.where(core.engine.sent_by(sequences, request.owner), sequences, -1)
    if request.cancel:
        effects = core.apply(Cancel(core.now_ms(), sequences))
    else:
        changes = request.dues_ms, request.priorities, request.groups
        effects = core.apply(Move(core.now_ms(), sequences, *changes))
    # Who named ids gets them back as they were; who named keys learns the ids, of its own alone.
    answered = sequences if request.sequences is None else request.sequences
    ids = np.where(answered >= 0, answered | (core.number << limits.SEQUENCE_BITS), -1)
    reply = Reply(request.number, request.rows, -1, ids, effects.statuses)
    inbox.answer(request, reply, request.acks)


def _sequences(core: PartitionCore, request: RenameRequest) -> Int64s:
    """The message that each row names, -1 = none."""
    if request.sequences is not None:
        return request.sequences
    assert request.key_hashes is not None
    keyed = find_in(core, request.keys, request.key_hashes)
    return np.full(request.rows, -1, dtype=np.int64) if keyed is None else keyed
