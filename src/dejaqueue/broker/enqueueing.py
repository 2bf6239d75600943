"""New messages into a partition: batches joined, keys resolved, one command, an answer for each.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: what can fail on what came from outside is done before the engine changes; a batch on which
that fails is refused alone, and the batches that waited beside it come in.
See: partition.py, `guarded`; merging.py; duplicates.py; rules 10, 11 and 15.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dejaqueue.broker import entries
from dejaqueue.broker.duplicates import enqueue_reply, resolve_batch, sub_batches
from dejaqueue.broker.merging import merge
from dejaqueue.broker.quotas import shortage
from dejaqueue.broker.requests import EnqueueRequest
from dejaqueue.broker.staging import refusal
from dejaqueue.engine.commands import Enqueue
from dejaqueue.errors import BadRequest, DejaQError

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition


def enqueue(place: Partition, requests: list[EnqueueRequest]) -> None:
    """Bring batches in, as one command if they allow it."""
    accepted: list[EnqueueRequest] = []
    seen: set[tuple[str, int]] = set()
    for request in requests:
        if request.producer:
            batch = (request.producer, request.number)
            if batch in seen:  # its first answer must be known before
                _bring_in(place, accepted)
                accepted, seen = [], set()
            if _answer_repeated(place, request):
                continue
            seen.add(batch)
        accepted.append(request)
    _bring_in(place, accepted)


def _bring_in(place: Partition, requests: list[EnqueueRequest]) -> None:
    """Bring in what is new; if one batch spoils the others, halve until it is alone."""
    if not requests or place.guarded(requests, partial(_bring_in_together, place, requests)):
        return
    middle = len(requests) // 2
    _bring_in(place, requests[:middle])
    _bring_in(place, requests[middle:])


def _answer_repeated(place: Partition, request: EnqueueRequest) -> bool:
    """Rule 10: a batch that was seen before gets its first answer."""
    answer = place.engine.answer(request.producer, request.number)
    if answer is None:
        return False
    if answer.rows != request.columns.rows or answer.strays != request.strays:
        if request.goes_back is not None and request.goes_back(request, place):
            place.forget(request)
            return True  # other rows of it are here: it is routed again, knowing that
        limit = f"another one: {answer.rows} rows were sent here with this number before"
        place.refuse(request, BadRequest("number", limit, request.number))
        return True
    place.counting.topic.repeated.add()
    reply = enqueue_reply(request.number, answer, place.number, answer.first_sequence)
    place.answer(request, reply, request.acks)
    return True


def _bring_in_together(place: Partition, requests: list[EnqueueRequest]) -> None:
    merged = merge(requests)
    rows = merged.columns.rows
    full: DejaQError | None = shortage(
        place, place.topic_backlog, rows, merged.columns.payload_bytes
    )
    if requests[0].stage is not None:
        full = refusal(place, requests[0].stage) or full
    if full is not None:
        for request in requests:
            place.refuse(request, full, request.columns.rows)
        return
    now_ms = place.now_ms()
    resolution = resolve_batch(place, merged, now_ms)
    batches = sub_batches(merged, resolution, place.number)
    # Also if all rows are refused: the answer has to be remembered (rule 10).
    if merged.columns.rows or any(request.producer for request in requests):
        replaced = None if resolution is None else resolution.replaced
        command = Enqueue(
            now_ms,
            place.next_position(),
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
            payload_sizes=merged.payload_sizes() if place.topic().max_backlog_bytes else None,
            senders=merged.senders,
        )
        effects = place.apply(command, entries.enqueue_entry(command, merged.texts()))
        place.sent(merged.columns.rows, merged.columns.payload_bytes)
        sequence = effects.first_sequence
        place.counting.came_in(command.position, merged.columns.dues_ms, now_ms)
    else:
        sequence = place.engine.next_sequence
    for request, batch in zip(requests, batches, strict=True):
        reply = enqueue_reply(request.number, batch, place.number, sequence)
        place.answer(request, reply, request.acks)
        sequence += batch.count
