"""DOQ's calls on the broker.

Room: http. On the event loop; what may wait for a disk runs on a thread, what changes a message on
its partition's worker.
Holds: no call waits for a message to come; an answer comes when what it says is durable.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from dejaqueue.access.senders import Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.doq import messages as doq
from dejaqueue.broker.doq.lapses import Lapses
from dejaqueue.broker.doq.messages import Name
from dejaqueue.broker.streams import ServedTopic
from dejaqueue.errors import (
    DejaQError,
    DuplicateKey,
    JournalDamaged,
    Refused,
    TopicUnknown,
    TryLater,
)
from dejaqueue.http.doq import rows
from dejaqueue.http.doq.ids import Ids
from dejaqueue.http.doq.rows import Row
from dejaqueue.http.doq.shapes import DoqNewMessage
from dejaqueue.http.doq.topics import is_queue
from dejaqueue.http.doq.turns import Turns
from dejaqueue.http.gather import Gather, Gathers
from dejaqueue.model import RowStatus, TopicKind, unpack_id
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

_TOLD = {
    RowStatus.NOT_FOUND: "message not found",
    RowStatus.LEASE_LOST: "message not found among those that wait for an acknowledgement",
    RowStatus.LEASED: "the message is with a consumer",
}
_MISSING = (RowStatus.NOT_FOUND, RowStatus.LEASE_LOST)
NACK_SECONDS_MAX = 30
ENQUEUE_TRIES = 64
"""How often a message is sent whose id was somebody else's a moment ago."""

Change = Callable[..., RowStatus]
"""A function of broker/doq/messages.py that takes a message's `name`."""


class Missing(Refused):
    """There is no such message, or none at all."""

    flight_status = "NOT_FOUND"


class Messages:
    """The messages of all queues."""

    def __init__(self, broker: Broker, ids: Ids) -> None:
        self._broker = broker
        self._ids = ids
        self._turn = 0
        self._gathers: Gathers[tuple[str, Sender]] = Gathers()
        # By the topic that is served, not by its name: one that is deleted is forgotten.
        self._lapses: WeakKeyDictionary[ServedTopic, defaultdict[int, Lapses]]
        self._lapses = WeakKeyDictionary()
        self._turns_of: WeakKeyDictionary[ServedTopic, dict[int, Turns]] = WeakKeyDictionary()

    def topic(self, queue_name: str) -> ServedTopic:
        """The topic behind a queue. Raises TopicUnknown, Unavailable."""
        topic = self._broker.runtime(queue_name)
        if not is_queue(topic.topic):
            raise TopicUnknown(queue_name)
        return topic

    async def enqueue(self, queue_name: str, message: DoqNewMessage, sender: Sender) -> Row:
        """Send; returns the message as it is kept: of an id that lives already, the one that lives.

        An id that is made here is the message's key, like one that a producer names: so no two live
        messages of a queue have one id, whoever named them.

        Raises:
            DuplicateKey: it is another sender's that lives, and this one is limited to its own; or
                the topic, which was made elsewhere, rejects what has the key of one that lives.
        """
        topic = self.topic(queue_name).topic
        named = rows.own_key(message.id)
        for _ in range(ENQUEUE_TRIES):
            key = named or self._ids.take(1)[0]
            sending = rows.sending_of(topic, message, key)
            answered = await self._gather(queue_name, sender).put([sending])
            if answered.statuses[0] == RowStatus.DUPLICATE:
                if named:
                    raise DuplicateKey(key, answered.ids[0])
                continue
            if answered.statuses[0] != RowStatus.KEPT:
                return rows.sent_row(topic, message, answered.ids[0], key)
            if named:
                with suppress(Refused):  # it was taken and acked since: there is room for this one
                    return await self.get(queue_name, named)
        raise TryLater(f"a message of the id {named or 'made here'} comes and goes")

    def _gather(self, queue_name: str, sender: Sender) -> Gather:
        """Messages of one sender and queue that come at once are sent at once."""
        gather = self._gathers.get((queue_name, sender))
        if gather is None:
            clock = self._broker.clock
            stream = WriteStream(queue_name)
            gather = Gather(
                self._broker, stream, sender, lambda r: rows.send_batch(r, clock.utc_ms())
            )
            self._gathers.keep((queue_name, sender), gather)
        return gather

    async def _write(self, stream: WriteStream, sender: Sender, batch: pa.RecordBatch) -> Reply:
        answer: Future[Reply] = Future()
        self._broker.open_write(stream, sender).submit(1, batch, answer.set_result)
        reply = await asyncio.wrap_future(answer)
        if reply.error is not None:
            raise reply.error
        return reply

    async def dequeue(self, queue_name: str, *, ack: bool) -> Row:
        """The first message that is due. Raises Missing if there is none."""
        topic = self.topic(queue_name)
        count = len(topic.partitions)
        self._turn += 1
        for step in range(count):
            number = (self._turn + step) % count
            lapses = self._lapses_of(topic, number)
            push = await self._turns(topic, number).run(partial(doq.take, lapses=lapses, done=ack))
            if push is None:
                continue
            if lapses is not None and not ack:
                leased = push.leased
                lapses.note(leased.lease_end_ms, int(leased.sequences[0]), int(leased.dues_ms[0]))
            for batch in push.kept:
                if batch.num_rows:
                    return rows.row_of(topic.topic, batch.to_pylist()[0])
        raise Missing("queue is empty")

    def _turns(self, topic: ServedTopic, number: int) -> Turns:
        turns = self._turns_of.setdefault(topic, {})
        turns_of = turns.get(number)
        if turns_of is None:
            turns_of = turns[number] = Turns(topic, number)
        return turns_of

    def _lapses_of(self, topic: ServedTopic, number: int) -> Lapses | None:
        """None for fair queues, where a message comes back to its place by itself."""
        if topic.topic.kind is not TopicKind.TIMELINE:
            return None
        return self._lapses.setdefault(topic, defaultdict(Lapses))[number]

    def note_taken(self, queue_name: str, row: Row, lease_end_ms: int, due_ms: int) -> None:
        """A message was leased by a consumer: when that ends it has its old place again."""
        number, sequence = unpack_id(row.message_id)
        lapses = self._lapses_of(self.topic(queue_name), number)
        if lapses is not None:
            lapses.note(lease_end_ms, sequence, due_ms)

    async def get(self, queue_name: str, text: str) -> Row:
        """A message as it is. Raises Missing if there is none."""
        topic, name = self.topic(queue_name), rows.name_of(text)
        row = await asyncio.to_thread(self._peek, queue_name, name)
        if row is None:
            raise Missing(_TOLD[RowStatus.NOT_FOUND])
        return rows.row_of(topic.topic, row)

    def _peek(self, queue_name: str, name: Name) -> dict[str, Any] | None:
        rows = self._page(queue_name, keys=list(name.keys))
        if not rows and name.id < 1 << 63:
            rows = [row for row in self._page(queue_name, ids=[name.id]) if not row["key"]]
        return rows[0] if rows else None

    def _page(self, queue_name: str, **named: list[Any]) -> list[dict[str, Any]]:
        _, [page] = self._broker.read("peek", {"topic": queue_name, **named})
        rows: list[dict[str, Any]] = page.to_pylist()
        for row in rows:
            if row.get("unread"):
                raise JournalDamaged(row["unread"])
        return rows

    async def ack(self, queue_name: str, text: str) -> None:
        """A message is done. Raises Refused if nobody has it."""
        await self._change(queue_name, text, doq.ack)

    async def touch(self, queue_name: str, text: str) -> None:
        """The acknowledgement timeout of a message begins anew."""
        await self._change(queue_name, text, doq.touch)

    async def delete(self, queue_name: str, text: str, sender: Sender) -> None:
        """A message is gone."""
        await self._change(queue_name, text, partial(doq.delete, owner=sender.owner))

    async def set_priority(self, queue_name: str, text: str, priority: int, sender: Sender) -> None:
        """A message that waits gets another priority."""
        topic = self.topic(queue_name).topic
        if doq.orders_by_priority(topic):
            doq.check_ordered(priority)
        elif topic.kind is TopicKind.TIMELINE:
            doq.due_ms_of(priority)
        else:
            raise Refused(f"{queue_name} hands out the messages of a group as they came")
        change = partial(doq.set_priority, priority=priority, owner=sender.owner)
        await self._change(queue_name, text, change)

    async def nack(
        self, queue_name: str, text: str, priority: int, metadata: dict[str, str] | None
    ) -> None:
        """A message goes back. With other metadata it is sent anew, and the old one is done, both
        or neither (rule 12); so it is with another priority in a fair queue where only a header can
        tell it."""
        topic = self.topic(queue_name).topic
        is_delayed = topic.kind is TopicKind.TIMELINE
        if is_delayed:
            doq.due_ms_of(priority)
        if metadata is not None:
            rows.headers_of(priority, metadata)
        is_ordered = doq.orders_by_priority(topic) and priority <= doq.ORDERED_MAX
        by_header = not is_delayed and not is_ordered
        if metadata is not None or (priority and by_header):
            row = await self.get(queue_name, text)
            wanted = (row.metadata or {}) if metadata is None else metadata
            is_other = by_header and priority not in (0, row.priority)
            if is_other or wanted != (row.metadata or {}):
                await self._send_anew(queue_name, row, priority or row.priority, wanted)
                return
        kept = 0 if by_header else priority
        await self._change(queue_name, text, partial(doq.put_back, priority=kept))

    async def _send_anew(
        self, queue_name: str, row: Row, priority: int, metadata: dict[str, str]
    ) -> None:
        home, sequence = unpack_id(row.message_id)
        # The sender of the message stays the one it was.
        asked = self.topic(queue_name).look(home, partial(doq.sender_of, sequence=sequence))
        sender = await asyncio.wrap_future(asked)
        transactions = self._broker.transactions
        timeout_ms = NACK_SECONDS_MAX * 1_000
        begun = transactions.begin(queue_name, timeout_ms, sender=sender)["transaction"]
        decide = partial(transactions.decide, begun, sender=sender)
        told = [f"{queue_name}/{home}"]
        try:
            home = await self._stage(begun, queue_name, row, priority, metadata, sender)
            told = list(dict.fromkeys([*told, f"{queue_name}/{home}"]))
        except DejaQError:
            await asyncio.wrap_future(decide(told, commit=False))
            raise
        await asyncio.wrap_future(decide(told, commit=True))

    async def _stage(
        self,
        begun: str,
        queue_name: str,
        row: Row,
        priority: int,
        metadata: dict[str, str],
        sender: Sender,
    ) -> int:
        """Stage that the old one is done and that the new one is sent; returns where it is."""
        held = pa.record_batch(
            {
                "id": pa.array([row.message_id], pa.int64()),
                "attempts": pa.array([row.attempts], pa.uint16()),
            }
        )
        acked = await self._write(WriteStream(queue_name, "ack", transaction=begun), sender, held)
        if acked.all_statuses()[0]:
            raise Missing(_TOLD[RowStatus.LEASE_LOST])
        message = DoqNewMessage(
            content=row.content, priority=priority, group=row.group, metadata=metadata
        )
        # The old one has its key until all is decided.
        key = row.id if row.key.endswith(rows.AGAIN) else row.id + rows.AGAIN
        sending = rows.sending_of(self.topic(queue_name).topic, message, key)
        batch = rows.send_batch([sending], self._broker.clock.utc_ms())
        sent = await self._write(WriteStream(queue_name, transaction=begun), sender, batch)
        return unpack_id(int(sent.all_ids()[0]))[0]

    async def _change(self, queue_name: str, text: str, change: Change) -> None:
        """Run a change where the message is. Raises Refused with what hinders it."""
        topic, name = self.topic(queue_name), rows.name_of(text)
        status = RowStatus.NOT_FOUND
        for number in name.homes(topic):
            status = await self._turns(topic, number).run(partial(change, name=name))
            if status is not RowStatus.NOT_FOUND:
                break
        if status is not RowStatus.OK:
            raise (Missing if status in _MISSING else Refused)(_TOLD[status])
