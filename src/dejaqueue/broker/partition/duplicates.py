"""Keys that are taken: which rows of a batch become messages, and which live ones make room.

Room: broker. Columns only; who has which key was found out before (keys.py).
Holds: after the batch every key has one live message, or the one it had (rule 11).
See: docs/guides/keys.md; partition.py, which asks for each batch with keys.

    on_duplicate   key of a live message            key that the batch has twice
    reject         DUPLICATE, the live id           the first row is taken, the others: DUPLICATE
    keep           KEPT, the live id                the first row is taken, the others: KEPT
    replace        OK; the live message goes, or,   the last row is taken, the others: KEPT, its id
                   if it is leased: DUPLICATE

To a sender who is limited to its own messages, the live message of another one is DUPLICATE in each
case, without its id: it is neither named nor replaced, and KEPT would say that the row is there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.partition.keys import find_in, find_repeats
from dejaqueue.broker.partition.merging import Merged
from dejaqueue.broker.partition.staged import sibling_sequences
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s, Mask, UInt8s
from dejaqueue.engine.commands import SubBatch
from dejaqueue.engine.producers import Answer
from dejaqueue.engine.table import LEASED, SCHEDULED
from dejaqueue.engine.views import PartitionViews
from dejaqueue.model import OnDuplicate, RowStatus, pack_id
from dejaqueue.wire.frames import Reply

_DUPLICATE = np.uint8(RowStatus.DUPLICATE)
_KEPT = np.uint8(RowStatus.KEPT)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of the rows of a batch in which some keys are taken.

    Attributes:
        taken: rows that become messages, ascending.
        sequences: for each other row the message that its reply names, shape (n,).
        statuses: RowStatus per row, shape (n,); OK for those that are taken.
        replaced: live messages that go.
    """

    taken: Int64s
    sequences: Int64s
    statuses: UInt8s
    replaced: Int64s


def resolve_batch(core: PartitionCore, merged: Merged, now_ms: int) -> Resolution | None:
    """What becomes of rows whose key is taken. Those that are refused are taken out of `merged`;
    None = there are none, and nothing is replaced.

    Args:
        now_ms: time of the command that will follow.
    """
    if merged.key_hashes is None or merged.columns.keys is None:
        return None
    engine = core.engine
    siblings = sibling_sequences(core, merged.requests[0].stage)
    live = find_in(core, merged.columns.keys, merged.key_hashes, siblings)
    firsts = find_repeats(merged.columns.keys, merged.key_hashes)
    if live is None and firsts is None:
        return None
    free = np.full(merged.columns.rows, -1, dtype=np.int64)
    live = free if live is None else live
    resolution = resolve(
        core.topic().on_duplicate,
        live,
        free if firsts is None else firsts,
        engine.next_sequence,
        too_late(core.views, live, now_ms),
        _foreign(core.views, live, merged.requests[0].owner),
    )
    if resolution is not None and resolution.taken.size < merged.columns.rows:
        merged.keep(resolution.taken)
    return resolution


def resolve(
    on_duplicate: OnDuplicate,
    live: Int64s,
    firsts: Int64s,
    next_sequence: int,
    leased: Mask,
    foreign: Mask | None = None,
) -> Resolution | None:
    """Decide about the rows of a batch; None = all are taken and nothing goes.

    Args:
        live: for each row the live message with its key, -1 = none.
        firsts: for each row the first of the batch with the same key, -1 = it is that itself.
        next_sequence: that the first row which is taken gets.
        leased: which messages of `live` are too late to replace; read for `replace` only.
        foreign: which of them are another sender's, and not to be named; None = none.
    """
    is_live = live >= 0
    repeats = firsts >= 0
    if not is_live.any() and not repeats.any():
        return None
    statuses = np.zeros(live.size, dtype=np.uint8)
    rows = np.arange(live.size, dtype=np.int64)
    firsts = np.where(repeats, firsts, rows)
    if on_duplicate is OnDuplicate.REPLACE:
        chosen = np.zeros(live.size, dtype=np.int64)
        np.maximum.at(chosen, firsts, rows)
        chosen = chosen[firsts]
        statuses[chosen != rows] = _KEPT
        if foreign is not None:
            leased = leased | foreign
        statuses[leased] = _DUPLICATE
        named = leased
    else:
        chosen = firsts
        refusal = _DUPLICATE if on_duplicate is OnDuplicate.REJECT else _KEPT
        statuses[is_live | repeats] = refusal
        if foreign is not None:
            statuses[foreign] = _DUPLICATE
        named = is_live
    taken_mask = statuses == 0
    new = next_sequence + np.cumsum(taken_mask) - 1
    sequences = np.where(named, live, new[chosen])
    if foreign is not None:
        sequences[foreign] = -1
    return Resolution(
        np.flatnonzero(taken_mask),
        sequences,
        statuses,
        live[taken_mask & is_live],
    )


def _foreign(views: PartitionViews, live: Int64s, owner: str | None) -> Mask | None:
    """Which of these messages (-1 = none) are another's than the owner's; None = anybody's are."""
    return None if owner is None else (live >= 0) & ~views.sent_by(live, owner)


def too_late(views: PartitionViews, live: Int64s, now_ms: int) -> Mask:
    """Which of these messages (-1 = none) cannot be replaced: all live ones but scheduled ones.
    One that any view has leased is not (rule 20).

    A lease that ends by `now_ms` is over when the next command is applied.
    """
    mask = np.zeros(live.size, dtype=np.bool_)
    rows = np.flatnonzero(live >= 0)
    if rows.size:
        states, dues_ms = views.look(live[rows])
        free = states == SCHEDULED
        free |= (states == LEASED) & (dues_ms <= now_ms)
        mask[rows] = ~free
    return mask


def sub_batches(
    merged: Merged, resolution: Resolution | None, partition: int
) -> tuple[SubBatch, ...]:
    """What each request gets: its rows that are taken, and for the others status and id."""
    batches = []
    for index, request in enumerate(merged.requests):
        first, end = int(merged.starts[index]), int(merged.starts[index + 1])
        if resolution is None:
            batches.append(
                SubBatch(request.producer, request.number, end - first, strays=request.strays)
            )
            continue
        statuses = resolution.statuses[first:end]
        refused = np.flatnonzero(statuses)
        ids = resolution.sequences[first:end][refused] | (partition << limits.SEQUENCE_BITS)
        batches.append(
            SubBatch(
                request.producer,
                request.number,
                end - first - refused.size,
                tuple(refused.tolist()),
                tuple(ids.tolist()),
                tuple(statuses[refused].tolist()),
                request.strays,
            )
        )
    return tuple(batches)


def enqueue_reply(
    number: int, batch: SubBatch | Answer, partition: int, first_sequence: int
) -> Reply:
    """The reply to a producer's batch, whose taken rows got sequences from `first_sequence` on."""
    first_id = pack_id(partition, first_sequence)
    if not batch.refused_indices:
        return Reply(number, batch.count, first_id)
    rows = batch.count + len(batch.refused_indices)
    refused = np.array(batch.refused_indices, dtype=np.int64)
    taken_mask = np.ones(rows, dtype=bool)
    taken_mask[refused] = False
    ids = np.empty(rows, dtype=np.int64)
    ids[taken_mask] = np.arange(first_id, first_id + batch.count)
    ids[refused] = batch.refused_ids
    statuses = np.zeros(rows, dtype=np.uint8)
    statuses[refused] = batch.refused_statuses
    return Reply(number, rows, -1, ids, statuses)
