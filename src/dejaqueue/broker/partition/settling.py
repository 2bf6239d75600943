"""Ack, nack and extend: what consumers say about messages they were leased.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: a row whose lease is over is answered LEASE_LOST and changes nothing (rule 4); an ack that is
staged counts with its transaction.
See: extending.py for many leases at once; engine/leases.py for who still holds a row.
"""

from __future__ import annotations

from dejaqueue.broker.partition.admission import Admission
from dejaqueue.broker.partition.extending import extend_leases
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.requests import SettleRequest
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Ack, Extend, Nack
from dejaqueue.wire.frames import Reply, SettleOp


def settle(core: PartitionCore, inbox: Inbox, admission: Admission, request: SettleRequest) -> None:
    """Apply an ack, a nack or an extend, and answer it."""
    if request.stage is not None:
        refused = admission.stage_refusal(core, request.stage)
        if refused is not None:
            inbox.refuse(request, refused)
            return
    if request.lease_ids is not None:
        outcomes = extend_leases(core, request.lease_ids, request.argument_ms)
        reply = Reply(request.number, len(outcomes), statuses=outcomes)
        inbox.answer(request, reply, request.acks)
        return
    statuses = core.apply(_command(core, request)).statuses
    count = len(request.sequences) if request.sequences is not None else 0
    if statuses is not None:
        count = len(statuses)
    reply = Reply(request.number, count, statuses=statuses)
    inbox.answer(request, reply, request.acks)


def _command(core: PartitionCore, request: SettleRequest) -> Ack | Nack | Extend:
    now_ms = core.now_ms()
    rows = (request.lease_id, request.sequences, request.attempts)
    match request.op:
        case SettleOp.ACK:
            return Ack(now_ms, *rows, request.stage)
        case SettleOp.NACK:
            due_ms = -1 if request.argument_ms < 0 else now_ms + request.argument_ms
            return Nack(now_ms, due_ms, *rows, request.reason, request.bury, request.release)
        case SettleOp.EXTEND:
            lease_ms = request.argument_ms or core.topic().lease_ms
            return Extend(now_ms, now_ms + lease_ms, *rows)
