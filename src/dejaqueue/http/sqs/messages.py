"""SQS's operations on messages: send, receive, delete, change how long they are invisible.

Room: http. On the event loop.
Holds: an answer comes when what it says is durable; entries of a batch that are refused are told
each for itself, and the others are done.
See: http/flow.py, by which all of it goes; receipts.py; fifo.py for deduplication.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from dejaqueue import limits
from dejaqueue.access.roles import Role
from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.sqs.messages import delete_lapsed
from dejaqueue.errors import BadRequest, DejaQError, Refused, Unauthenticated
from dejaqueue.http.flow import has_gone
from dejaqueue.http.sqs import fifo
from dejaqueue.http.sqs.names import arn_of, is_fifo, name_of_url
from dejaqueue.http.sqs.receipts import delivery_of
from dejaqueue.http.sqs.refusals import SqsRefusal, entry_refusal
from dejaqueue.http.sqs.rows import (
    Sending,
    Wanted,
    batch_of,
    message_of,
    row_of,
    rows_of,
    sending_of,
    sequence_number,
    wanted_of,
    wrong,
)
from dejaqueue.http.sqs.state import Operation
from dejaqueue.http.sqs.topics import label_of
from dejaqueue.model import RowStatus, Topic, unpack_id
from dejaqueue.schema import dead_letters
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream

ENTRIES_MAX = 10
BATCH_BYTES_MAX = limits.PAYLOAD_BYTES_DEFAULT
"""Bodies and attributes of one batch, as in SQS."""
WAIT_SECONDS_MAX = 20
VISIBLE_SECONDS_MAX = 43_200
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")

Answer = dict[str, Any]
Outcome = Answer | DejaQError


# --- sending --------------------------------------------------------------------------------------


async def send(operation: Operation) -> Answer:
    """SendMessage."""
    [outcome] = await _send(operation, [operation.values])
    if isinstance(outcome, DejaQError):
        raise outcome
    return outcome


async def send_batch(operation: Operation) -> Answer:
    """SendMessageBatch."""
    entries = _entries(operation)
    return _batch_answer(entries, await _send(operation, entries))


async def _send(operation: Operation, entries: Sequence[Answer]) -> list[Outcome]:
    """Send messages; for each its answer, or why it was refused."""
    queue_name = _queue_name(operation, Role.PRODUCE)
    topic = operation.served(queue_name).topic
    now_ms = operation.now_ms()
    outcomes: list[Outcome | None] = [None] * len(entries)
    sendings: dict[int, Sending] = {}
    for index, values in enumerate(entries):
        try:
            sendings[index] = _checked(topic, sending_of(values), now_ms)
        except (BadRequest, Refused) as error:
            outcomes[index] = error
    byte_count = sum([one.byte_count for one in sendings.values()])
    if byte_count > BATCH_BYTES_MAX:
        text = f"at most {BATCH_BYTES_MAX} bytes in all, got: {byte_count}"
        raise SqsRefusal("BatchRequestTooLong", text)
    operation.account.take_sent(len(sendings), byte_count, wait=False)
    write = fifo.write if is_fifo(queue_name) else _write
    answered = await write(operation, topic, list(sendings.values())) if sendings else []
    for (index, sending), found in zip(sendings.items(), answered, strict=True):
        outcomes[index] = found if isinstance(found, DejaQError) else sending.answer() | found
    return [one for one in outcomes if one is not None]


def _checked(topic: Topic, sending: Sending, now_ms: int) -> Sending:
    """With the delay that it has. Raises SqsRefusal: the queue does not take it."""
    byte_count = sending.byte_count
    if byte_count > topic.max_payload_bytes:
        text = f"message: at most {topic.max_payload_bytes} bytes, got: {byte_count}"
        raise wrong(text)
    if is_fifo(topic.name):
        fifo.check(topic, sending)
    elif sending.deduplication_id:
        raise wrong("MessageDeduplicationId: for FIFO queues alone")
    delay_ms = sending.delay_ms
    if delay_ms is None:
        sending.delay_ms = int(label_of(topic, "DelaySeconds")) * 1_000
        return sending
    most_ms = topic.max_delay_ms or limits.INSTANT_MS_MAX - now_ms
    if delay_ms > most_ms:
        limit = f"from 0 to {most_ms // 1_000}, the topic's max_delay_ms"
        raise wrong(f"DelaySeconds: {limit}, got: {delay_ms // 1_000}")
    return sending


async def _write(operation: Operation, topic: Topic, sendings: list[Sending]) -> list[Outcome]:
    """Send messages of a standard queue, with whatever others send now."""
    sender = operation.principal.sender_for(topic.name, Role.PRODUCE)
    now_ms = operation.now_ms()
    rows = [row_of(sending, sender.name, now_ms) for sending in sendings]
    await operation.flow.gather(_stream(topic.name), sender, batch_of).put(rows)
    return [{} for _ in sendings]


@lru_cache(1_024)
def _stream(queue_name: str, op: str = "enqueue", argument_ms: int = 0) -> WriteStream:
    """Batches of one kind; made once, as each request asks for it."""
    return WriteStream(queue_name, op, argument_ms=argument_ms)


# --- receiving ------------------------------------------------------------------------------------


async def receive(operation: Operation) -> Answer:
    """ReceiveMessage."""
    queue_name = _queue_name(operation, Role.CONSUME)
    topic = operation.served(queue_name).topic
    values = operation.values
    wanted = wanted_of(values)
    rows_max = _whole(values, "MaxNumberOfMessages", 1, 1, ENTRIES_MAX)
    wait_default = int(label_of(topic, "ReceiveMessageWaitTimeSeconds"))
    wait_seconds = _whole(values, "WaitTimeSeconds", wait_default, 0, WAIT_SECONDS_MAX)
    visible = _whole(values, "VisibilityTimeout", -1, 0, VISIBLE_SECONDS_MAX)
    lease_ms = 0 if visible < 0 else max(visible * 1_000, limits.LEASE_MS_MIN)
    options = ConsumeStream(queue_name, "", lease_ms, limits.LEASE_ROWS_MAX, holds=False).check()
    request, flow = operation.request, operation.flow

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    wait_ms, is_over = wait_seconds * 1_000, partial(has_gone, request)
    taken = await flow.leases.lease(options, rows_max, wait_ms, gone, is_over)
    if taken and wait_seconds:
        try:
            operation.sqs.service.gate.check(operation.principal)
        except Unauthenticated:  # the key was revoked while the request waited
            flow.leases.session(options).give_back(taken)
            raise
    rows = [row for part in taken for row in part.values(rows_of)]
    now_ms = operation.now_ms()
    messages = [_message(operation, queue_name, row, wanted, now_ms) for row in rows]
    return {"Messages": messages} if messages else {}


def _message(
    operation: Operation, queue_name: str, row: Answer, wanted: Wanted, now_ms: int
) -> Answer:
    first_ms = operation.sqs.first_receive_ms(queue_name, row["id"], row["attempts"], now_ms)
    if not wanted.system:
        return message_of(queue_name, row, wanted, {})
    system = {"ApproximateFirstReceiveTimestamp": str(first_ms)}
    origin = row["headers"].get(dead_letters.ORIGIN)
    if origin:
        system["DeadLetterQueueSourceArn"] = arn_of(operation.region, origin)
    if is_fifo(queue_name):
        system["SequenceNumber"] = sequence_number(row["id"])
    return message_of(queue_name, row, wanted, system)


# --- settling -------------------------------------------------------------------------------------


async def delete(operation: Operation) -> Answer:
    """DeleteMessage."""
    queue_name = _queue_name(operation, Role.CONSUME)
    delivery = delivery_of(queue_name, operation.values.get("ReceiptHandle"))
    await _delete(operation, queue_name, [delivery], [0])
    return {}


async def delete_batch(operation: Operation) -> Answer:
    """DeleteMessageBatch."""
    return await _settle_batch(operation, _delete)


async def _delete(
    operation: Operation, queue_name: str, deliveries: list[tuple[int, int]], _numbers: list[int]
) -> list[Outcome]:
    """Delete what was delivered so: also after its time, if nobody has received it since. One that
    is gone, or is with somebody else, is no error, as in SQS."""
    topic = operation.served(queue_name)
    gather = operation.flow.gather(_stream(queue_name, "ack"), NOBODY)
    answered = await gather.put(deliveries)
    lost: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (message_id, attempts), status in zip(deliveries, answered.statuses, strict=True):
        if status == RowStatus.LEASE_LOST:
            partition, sequence = unpack_id(message_id)
            if partition < len(topic.partitions):
                lost[partition].append((sequence, attempts))
    deletions = [delete_lapsed(topic, partition, rows) for partition, rows in lost.items()]
    await asyncio.gather(*map(asyncio.wrap_future, deletions))
    for message_id, _ in deliveries:
        operation.sqs.first_receives.pop((queue_name, message_id), None)
    return [{} for _ in deliveries]


async def change_lease(operation: Operation) -> Answer:
    """ChangeMessageVisibility."""
    queue_name = _queue_name(operation, Role.CONSUME)
    values = operation.values
    delivery = delivery_of(queue_name, values.get("ReceiptHandle"))
    [outcome] = await _change(operation, queue_name, [delivery], [_visible(values)])
    if isinstance(outcome, DejaQError):
        raise outcome
    return {}


async def change_leases(operation: Operation) -> Answer:
    """ChangeMessageVisibilityBatch."""
    return await _settle_batch(operation, _change, _visible)


def _visible(values: Answer) -> int:
    return _whole(values, "VisibilityTimeout", None, 0, VISIBLE_SECONDS_MAX)


async def _change(
    operation: Operation, queue_name: str, deliveries: list[tuple[int, int]], seconds: list[int]
) -> list[Outcome]:
    """Have leases end so many seconds from now; 0 = the message goes back at once."""
    operation.served(queue_name)
    indices_of: dict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(seconds):
        indices_of[length].append(index)
    outcomes: list[Outcome] = [{} for _ in deliveries]
    for length, indices in indices_of.items():
        stream = _stream(queue_name, "extend", length * 1_000)
        if not length:
            stream = _stream(queue_name, "nack", 0)
        rows = [deliveries[index] for index in indices]
        answered = await operation.flow.gather(stream, NOBODY).put(rows)
        for index, status in zip(indices, answered.statuses, strict=True):
            if status != RowStatus.OK:
                text = "ReceiptHandle: of a message that is in flight; its time is over, or it is "
                outcomes[index] = SqsRefusal("MessageNotInflight", f"{text}deleted")
    return outcomes


# --- batches --------------------------------------------------------------------------------------

Settle = Callable[[Operation, str, list[tuple[int, int]], list[int]], Awaitable[list[Outcome]]]


async def _settle_batch(
    operation: Operation, settle: Settle, number_of: Callable[[Answer], int] = lambda _: 0
) -> Answer:
    """Settle the entries of a batch.

    Args:
        number_of: what `settle` gets of each entry beside its delivery. Raises SqsRefusal.
    """
    queue_name = _queue_name(operation, Role.CONSUME)
    entries = _entries(operation)
    outcomes: dict[int, Outcome] = {}
    deliveries: dict[int, tuple[int, int]] = {}
    numbers: list[int] = []
    for index, entry in enumerate(entries):
        try:
            number = number_of(entry)
            deliveries[index] = delivery_of(queue_name, entry.get("ReceiptHandle"))
            numbers.append(number)
        except SqsRefusal as error:
            outcomes[index] = error
    if deliveries:
        settled = await settle(operation, queue_name, list(deliveries.values()), numbers)
        outcomes |= dict(zip(deliveries, settled, strict=True))
    return _batch_answer(entries, [outcomes[index] for index in range(len(entries))])


def _entries(operation: Operation) -> list[Answer]:
    """The entries of a batch. Raises SqsRefusal: the batch as a whole is wrong."""
    entries = operation.values.get("Entries")
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise wrong("Entries: a list of objects")
    if not entries:
        raise SqsRefusal("EmptyBatchRequest", "Entries: at least one")
    if len(entries) > ENTRIES_MAX:
        text = f"Entries: at most {ENTRIES_MAX}, got: {len(entries)}"
        raise SqsRefusal("TooManyEntriesInBatchRequest", text)
    ids = [entry.get("Id") for entry in entries]
    for entry_id in ids:
        if not isinstance(entry_id, str) or _ENTRY_ID.fullmatch(entry_id) is None:
            text = f"Id: 1 to 80 characters of A-Z a-z 0-9 - _, got: {entry_id!r:.100}"
            raise SqsRefusal("InvalidBatchEntryId", text)
    if len(set(ids)) < len(ids):
        raise SqsRefusal("BatchEntryIdsNotDistinct", "Id: another one for each entry")
    return entries


def _batch_answer(entries: list[Answer], outcomes: Sequence[Outcome]) -> Answer:
    answer: Answer = {"Successful": [], "Failed": []}
    for entry, outcome in zip(entries, outcomes, strict=True):
        if isinstance(outcome, DejaQError):
            answer["Failed"].append(entry_refusal(entry["Id"], outcome))
        else:
            answer["Successful"].append({"Id": entry["Id"], **outcome})
    return {name: found for name, found in answer.items() if found}


# --- values ---------------------------------------------------------------------------------------


def _queue_name(operation: Operation, role: Role) -> str:
    """The queue of an operation, for which the caller has the role."""
    queue_name = name_of_url(operation.values.get("QueueUrl"))
    operation.require(role, queue_name)
    return queue_name


def _whole(values: Answer, name: str, default: int | None, low: int, high: int) -> int:
    value = values.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise wrong(f"{name}: a whole number from {low} to {high}, got: {value!r:.100}")
    return value
