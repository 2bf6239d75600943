"""What FIFO queues have beside the others: deduplication, and what their messages must say.

Room: http. On the event loop.
Holds: of the messages that one sender sends to a queue, or to a group of it where the queue's
DeduplicationScope is that, under one deduplication id within five minutes one is there, also if the
broker was restarted in between, or another one serves the queue.
See: rule 10, by which partitions remember batches; topics.py: order in a group is a fair topic's,
whose groups give runs.

A message is a batch of a producer (rule 10) that its deduplication id chooses, and the batch's
number says the id and the second. Who served the queue for five minutes knows by itself what was
sent; who did not asks the partition, which remembers 128 batches of each of these producers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from dejaqueue.access.roles import Role
from dejaqueue.access.senders import Sender
from dejaqueue.broker.sqs.messages import find_repeat
from dejaqueue.broker.streams import ServedTopic
from dejaqueue.errors import DejaQError
from dejaqueue.http.gather import write as write_batch
from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.http.sqs.rows import (
    Sending,
    batch_of,
    made_id,
    row_of,
    sequence_number,
    wrong,
)
from dejaqueue.http.sqs.state import Operation
from dejaqueue.http.sqs.topics import is_scoped_by_group, label_of
from dejaqueue.model import Topic
from dejaqueue.wire.descriptors import WriteStream

WINDOW_SECONDS = 300
BUCKETS = 1 << 12
"""Producers that deduplication ids are spread over."""
_TIME_BITS = 20
"""Of a batch's number: the second, modulo twelve days."""
_TIME_MASK = (1 << _TIME_BITS) - 1
_AHEAD_SECONDS_MAX = 60
"""A clock that was put back by less does not let a message in twice."""
KNOWN_MAX = 200_000


def check(topic: Topic, sending: Sending) -> None:
    """Raise SqsRefusal if a FIFO queue does not take such a message."""
    if not sending.group:
        raise SqsRefusal("MissingParameter", "MessageGroupId: each message of a FIFO queue has one")
    if sending.delay_ms:
        raise wrong("DelaySeconds: a FIFO queue has it for all of its messages, as an attribute")
    if not sending.deduplication_id and not _by_content(topic):
        raise wrong("MessageDeduplicationId: is needed, as ContentBasedDeduplication is off")


def _by_content(topic: Topic) -> bool:
    return label_of(topic, "ContentBasedDeduplication") == "true"


@dataclass(frozen=True, slots=True)
class Name:
    """What the name of a message (`_name`) is to the partition.

    Attributes:
        producer: of whose batches it is one.
        digest: what its batch's number begins with.
    """

    producer: str
    digest: int

    @classmethod
    def of(cls, text: str) -> Name:
        """Of a text."""
        content = hashlib.blake2b(text.encode(), digest_size=8).digest()
        number = int.from_bytes(content, "big")
        return cls(f"sqs-{number % BUCKETS}", number >> 21)

    def number(self, second: int) -> int:
        """The number of its batch if it is sent now: 63 bits."""
        return self.digest << _TIME_BITS | second & _TIME_MASK

    def is_repeat(self, number: int, second: int) -> bool:
        """True if a batch has this id, and was sent less than five minutes ago."""
        if number >> _TIME_BITS != self.digest:
            return False
        age = (second - number) & _TIME_MASK
        return age < WINDOW_SECONDS or age > _TIME_MASK - _AHEAD_SECONDS_MAX


class RecentMessages:
    """What was sent to a queue lately, by sender and name (`_name`).

    Attributes:
        complete_from: from that second on it has all that was sent.
        busy: names that are being sent now; whoever sends one of them waits.
    """

    def __init__(self, second: int) -> None:
        self.complete_from = second
        self.busy: dict[tuple[Sender, str], asyncio.Event] = {}
        self._known: OrderedDict[tuple[Sender, str], tuple[int, dict[str, Any]]] = OrderedDict()

    def note(self, key: tuple[Sender, str], second: int, answer: dict[str, Any]) -> None:
        """One was sent in this second."""
        self._known[key] = second, answer
        self._known.move_to_end(key)
        while len(self._known) > KNOWN_MAX:
            _, (forgotten, _) = self._known.popitem(last=False)
            self.complete_from = max(self.complete_from, forgotten + 1)
        while self._known and next(iter(self._known.values()))[0] <= second - WINDOW_SECONDS:
            self._known.popitem(last=False)

    def find(self, key: tuple[Sender, str], second: int) -> dict[str, Any] | None:
        """The answer to one that was sent less than five minutes ago."""
        sent = self._known.get(key)
        return None if sent is None or sent[0] <= second - WINDOW_SECONDS else sent[1]

    def is_complete(self, second: int) -> bool:
        """True if what is not found was not sent within five minutes."""
        return self.complete_from <= second - WINDOW_SECONDS


RECENT_MESSAGES: WeakKeyDictionary[ServedTopic, RecentMessages] = WeakKeyDictionary()
"""By what is served: whoever serves a queue anew begins to remember anew."""


async def write(
    operation: Operation, topic: Topic, sendings: list[Sending]
) -> list[dict[str, Any] | DejaQError]:
    """Send messages in their order; those that were sent before get the first answer."""
    served = operation.served(topic.name)
    sender = operation.principal.sender_for(topic.name, Role.PRODUCE)
    recent = RECENT_MESSAGES.setdefault(served, RecentMessages(operation.now_ms() // 1_000))
    identified = [_with_id(sending) for sending in sendings]
    named = [(_name(topic, one), one) for one in identified]
    keys = {(sender, name) for name, _ in named}
    while waits := [recent.busy[key] for key in keys if key in recent.busy]:
        await waits[0].wait()
    done = asyncio.Event()
    recent.busy |= dict.fromkeys(keys, done)
    try:
        return await _write_named(operation, served, sender, recent, named)
    finally:
        for key in keys:
            del recent.busy[key]
        done.set()


def _name(topic: Topic, sending: Sending) -> str:
    """What a message is recognised by. Neither a group nor an id has a blank in it."""
    if is_scoped_by_group(topic):
        return f"{sending.group} {sending.deduplication_id}"
    return sending.deduplication_id


def _with_id(sending: Sending) -> Sending:
    """With the deduplication id that its body makes, if it has none of its own."""
    if sending.deduplication_id:
        return sending
    made = hashlib.sha256(sending.body).hexdigest()
    return replace(sending, deduplication_id=made)


async def _write_named(
    operation: Operation,
    served: ServedTopic,
    sender: Sender,
    recent: RecentMessages,
    named: list[tuple[str, Sending]],
) -> list[dict[str, Any] | DejaQError]:
    second = operation.now_ms() // 1_000
    first_of = dict(reversed(named))
    answers: dict[str, dict[str, Any] | DejaQError] = {}
    for name in first_of:
        found = recent.find((sender, name), second)
        if found is None and not recent.is_complete(second):
            found = await _find(served, sender, name, second)
        if found is not None:
            answers[name] = found
    new = [(name, one) for name, one in named if first_of[name] is one and name not in answers]
    # All of them are submitted, in this order, before any of them is waited for.
    sent = await asyncio.gather(
        *(_write_one(operation, served, sender, name, one, second) for name, one in new),
        return_exceptions=True,
    )
    for (name, _), outcome in zip(new, sent, strict=True):
        if isinstance(outcome, dict):
            recent.note((sender, name), second, outcome)
        elif not isinstance(outcome, DejaQError):
            raise outcome
        answers[name] = outcome
    return [answers[name] for name, _ in named]


async def _find(
    served: ServedTopic, sender: Sender, name: str, second: int
) -> dict[str, Any] | None:
    """The answer to a message that a partition remembers."""
    key = Name.of(name)
    for partition in served.partitions.numbers:
        asked = find_repeat(
            served, partition, sender, key.producer, lambda number: key.is_repeat(number, second)
        )
        found = await asyncio.wrap_future(asked)
        if found is not None:
            return _answer(served.topic.name, sender, name, *found)
    return None


def _answer(
    queue_name: str, sender: Sender, name: str, number: int, message_id: int
) -> dict[str, Any]:
    return {
        "MessageId": _message_id(queue_name, sender, name, number),
        "SequenceNumber": sequence_number(message_id),
    }


def _message_id(queue_name: str, sender: Sender, name: str, number: int) -> str:
    """It follows from what the partition remembers, so that who sends again gets the first one."""
    return made_id(f"{queue_name}/{sender.producer(name)}/{number}")


async def _write_one(
    operation: Operation,
    served: ServedTopic,
    sender: Sender,
    name: str,
    sending: Sending,
    second: int,
) -> dict[str, Any]:
    queue_name, key, now_ms = served.topic.name, Name.of(name), operation.now_ms()
    number = key.number(second)
    sending = replace(sending, message_id=_message_id(queue_name, sender, name, number))
    batch = batch_of([row_of(sending, sender.name, now_ms)])
    stream = WriteStream(queue_name, producer=key.producer)
    answered = await write_batch(operation.broker, stream, sender, batch, number)
    return _answer(queue_name, sender, name, number, answered.ids[0])
