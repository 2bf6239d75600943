"""Move and cancel: messages named by id or by key get other fields, or go.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: of a sender who is limited to its own messages another one's is as one that never was; a row
that names nothing is answered as such, and the others are done. What is asked of the time that a
message is due at (a shift, a condition) is answered here, so that the command has times alone.
See: keys.py for names that are keys; rules 6, 7 and 11.
"""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.keys import find_in
from dejaqueue.broker.partition.requests import RenameRequest
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s, UInt8s
from dejaqueue.engine.commands import Cancel, Move
from dejaqueue.engine.transitions import statuses_by_state
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply


def rename(core: PartitionCore, inbox: Inbox, request: RenameRequest) -> None:
    """Apply a move or a cancel, and answer with a status for each row."""
    sequences = _sequences(core, request)
    if request.owner is not None:
        sequences = np.where(core.views.sent_by(sequences, request.owner), sequences, -1)
    named = sequences
    refusals, dues_ms = None, request.dues_ms
    if request.shifts_ms is not None or request.if_dues_ms is not None:
        refusals, dues_ms = _looked_up(core, request, sequences)
        sequences = np.where(refusals == RowStatus.OK, sequences, -1)
    if request.cancel:
        statuses = core.apply(Cancel(core.now_ms(), sequences)).statuses
    else:
        changes = dues_ms, request.priorities, request.groups
        statuses = core.apply(Move(core.now_ms(), sequences, *changes)).statuses
    if refusals is not None and statuses is not None:
        statuses = np.where(refusals == RowStatus.OK, statuses, refusals)
    # Who named ids gets them back as they were; who named keys learns the ids, of its own alone.
    answered = named if request.sequences is None else request.sequences
    ids = np.where(answered >= 0, answered | (core.number << limits.SEQUENCE_BITS), -1)
    reply = Reply(request.number, request.rows, -1, ids, statuses)
    inbox.answer(request, reply, request.acks)


def _looked_up(
    core: PartitionCore, request: RenameRequest, sequences: Int64s
) -> tuple[UInt8s, Int64s | None]:
    """A status for each row, OK where it may be changed; and when each is to be due."""
    states, dues_ms = core.views.look(sequences)
    refusals = statuses_by_state("cancel" if request.cancel else "move")[states]
    if request.if_dues_ms is not None:
        differs = (request.if_dues_ms >= 0) & (request.if_dues_ms != dues_ms)
        refusals = np.where((refusals == RowStatus.OK) & differs, RowStatus.CHANGED, refusals)
    if request.shifts_ms is None:
        return refusals.astype(np.uint8), request.dues_ms
    shifted_ms = np.clip(dues_ms + request.shifts_ms, 0, limits.INSTANT_MS_MAX)
    return refusals.astype(np.uint8), shifted_ms


def _sequences(core: PartitionCore, request: RenameRequest) -> Int64s:
    """The message that each row names, -1 = none."""
    if request.sequences is not None:
        return request.sequences
    assert request.key_hashes is not None
    keyed = find_in(core, request.keys, request.key_hashes)
    return np.full(request.rows, -1, dtype=np.int64) if keyed is None else keyed
