"""New messages into a partition: batches joined, keys resolved, one command, an answer for each.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: what can fail on what came from outside is done before the engine changes; a batch on which
that fails is refused alone, and the batches that waited beside it come in.
See: inbox.py, `guarded`; merging.py; duplicates.py; rules 10, 11 and 15.
"""

from __future__ import annotations

from functools import partial

from dejaqueue.broker.partition.admission import Admission
from dejaqueue.broker.partition.duplicates import enqueue_reply, resolve_batch, sub_batches
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.merging import merge
from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.backlog import notes_sizes
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Enqueue
from dejaqueue.errors import BadRequest


def enqueue(
    core: PartitionCore, inbox: Inbox, admission: Admission, requests: list[EnqueueRequest]
) -> None:
    """Bring batches in, as one command if they allow it."""
    accepted: list[EnqueueRequest] = []
    seen: set[tuple[str, int]] = set()
    for request in requests:
        if request.producer:
            batch = (request.producer, request.number)
            if batch in seen:  # its first answer must be known before
                _bring_in(core, inbox, admission, accepted)
                accepted, seen = [], set()
            if _answer_repeated(core, inbox, request):
                continue
            seen.add(batch)
        accepted.append(request)
    _bring_in(core, inbox, admission, accepted)


def _bring_in(
    core: PartitionCore, inbox: Inbox, admission: Admission, requests: list[EnqueueRequest]
) -> None:
    """Bring in what is new; if one batch spoils the others, halve until it is alone."""
    if not requests or inbox.guarded(
        requests, partial(_bring_in_together, core, inbox, admission, requests)
    ):
        return
    middle = len(requests) // 2
    _bring_in(core, inbox, admission, requests[:middle])
    _bring_in(core, inbox, admission, requests[middle:])


def _answer_repeated(core: PartitionCore, inbox: Inbox, request: EnqueueRequest) -> bool:
    """Rule 10: a batch that was seen before gets its first answer."""
    answer = core.engine.answer(request.producer, request.number)
    if answer is None:
        return False
    if answer.rows != request.columns.rows or answer.strays != request.strays:
        if request.goes_back is not None and request.goes_back(request, core):
            inbox.forget(request)
            return True  # other rows of it are here: it is routed again, knowing that
        limit = f"another one: {answer.rows} rows were sent here with this number before"
        inbox.refuse(request, BadRequest("number", limit, request.number))
        return True
    core.counting.topic.repeated.add()
    reply = enqueue_reply(request.number, answer, core.number, answer.first_sequence)
    inbox.answer(request, reply, request.acks)
    return True


def _bring_in_together(
    core: PartitionCore, inbox: Inbox, admission: Admission, requests: list[EnqueueRequest]
) -> None:
    merged = merge(requests)
    rows = merged.columns.rows
    refused = admission.refusal(core, requests[0].stage, rows, merged.columns.payload_bytes)
    if refused is not None:
        for request in requests:
            inbox.refuse(request, refused, request.columns.rows)
        return
    now_ms = core.now_ms()
    resolution = resolve_batch(core, merged, now_ms)
    batches = sub_batches(merged, resolution, core.number)
    # Also if all rows are refused: the answer has to be remembered (rule 10).
    if merged.columns.rows or any(request.producer for request in requests):
        replaced = None if resolution is None else resolution.replaced
        command = Enqueue(
            now_ms,
            core.next_position(),
            merged.columns.dues_ms,
            batches,
            merged.key_hashes,
            merged.columns.payload_bytes,
            merged.columns.priorities,
            entries.words(merged.columns.groups, "group"),
            entries.words(merged.columns.tags, "tags"),
            merged.columns.expires_ms,
            stage=requests[0].stage,
            replaced=replaced if replaced is not None and replaced.size else None,
            payload_sizes=merged.payload_sizes() if notes_sizes(core.topic()) else None,
            senders=merged.senders,
        )
        first = core.engine.next_sequence
        effects = core.apply(command, entries.enqueue_entry(command, merged.texts(), first))
        core.sent(merged.columns.rows, merged.columns.payload_bytes)
        sequence = effects.first_sequence
        core.counting.came_in(command.position, merged.columns.dues_ms, now_ms)
    else:
        sequence = core.engine.next_sequence
    for request, batch in zip(requests, batches, strict=True):
        reply = enqueue_reply(request.number, batch, core.number, sequence)
        inbox.answer(request, reply, request.acks)
        sequence += batch.count
