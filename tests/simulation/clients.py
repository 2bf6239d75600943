"""Producers of a simulated broker: they send, move and cancel, and note all of it.

They keep to the protocol of the client library (numbers, producer names, resending after a break)
without its threads. The library itself is tested against real brokers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.errors import DejaQError, Elsewhere, TopicUnknown, Unavailable
from dejaqueue.model import RowStatus
from dejaqueue.testing.simulation.machine import Reachable
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.checker.history import Cancel, History, Move, Outcome, Send
from tests.simulation.scenario import GROUPS, TOPIC


@dataclass
class _Batch:
    number: int
    columns: dict[str, Any]
    notes: list[Any]
    sent: int = 0


@dataclass
class Stream:
    """One op's batches, each sent until it is answered."""

    op: str
    connection: Connection
    writer: Writer | None = None
    waiting: dict[int, _Batch] = field(default_factory=dict)


class Producer:
    """Sends, moves and cancels, from a name of its own.

    Args:
        known: ids that anybody may try to move or cancel; filled as answers come.
        sender: as whom it calls.
    """

    def __init__(
        self,
        name: str,
        world: World,
        machine: Reachable,
        history: History,
        known: list[int],
        sender: Sender = NOBODY,
    ) -> None:
        self._name = name
        self._sender = sender
        self._world = world
        self._machine = machine
        self._history = history
        self._known = known
        self._number = 0
        self._streams: dict[str, Stream] = {}
        self._count = 0
        self.stopped = False
        self.keyed = world.chance(0.5)
        self.keys_max = 400
        self.mortal = world.chance(0.3)
        self.delay_ms_max = world.random.choice([200, 5_000, 20_000])
        self.rows_max = world.random.choice([1, 20, 20, 60])

    @property
    def idle(self) -> bool:
        """Everything was answered."""
        return not any(stream.waiting for stream in self._streams.values())

    def lose(self) -> None:
        """Its connections break."""
        for stream in list(self._streams.values()):
            stream.connection.break_it()

    def act(self) -> None:
        """Do something, then plan the next."""
        if self.stopped:
            return
        world = self._world
        what = world.random.random()
        if what < 0.75 or not self._known:
            self._send()
        elif what < 0.9:
            self._move()
        else:
            self._cancel()
        world.after(world.between(1_000, 300_000), self.act)

    def _send(self) -> None:
        world, now_us = self._world, self._world.now_us
        names = ("payload", "due", "group", "priority", "expires")
        notes: list[Any] = []
        columns: dict[str, list[Any]] = {name: [] for name in names}
        keys: list[str | None] = []
        for _ in range(min(self.rows_max, world.random.choice([1, 1, 2, 10, 20, 60]))):
            self._count += 1
            token = f"{self._name}-{self._count}"
            due_ms = now_us // 1_000 + world.between(-500, self.delay_ms_max)
            key = (
                f"key-{world.between(1, self.keys_max)}" if self.keyed and world.chance(0.3) else ""
            )
            send = Send(now_us, token=token, due_ms=due_ms, key=key)
            send.sender, send.owner = self._sender.name, self._sender.owner
            send.group = world.random.choice(GROUPS)
            send.priority = world.random.choice([0, 5, 32_768, 65_535])
            if self.mortal and world.chance(0.2):
                send.expires_ms = due_ms + world.between(-100, 2_000)
            notes.append(send)
            columns["payload"].append(token.encode())
            columns["due"].append(due_ms)
            columns["group"].append(send.group)
            columns["priority"].append(send.priority)
            columns["expires"].append(send.expires_ms)
            keys.append(key or None)
        self._history.sends += notes
        self._submit("enqueue", {**columns, "key": keys}, notes)

    def _pick(self) -> list[int]:
        ids = [self._world.random.choice(self._known) for _ in range(self._world.between(1, 5))]
        return list(dict.fromkeys(ids))

    def _move(self) -> None:
        now_us = self._world.now_us
        ids = self._pick()
        dues = [now_us // 1_000 + self._world.between(-100, self.delay_ms_max) for _ in ids]
        owner = self._sender.owner
        pairs = zip(ids, dues, strict=True)
        notes = [Move(now_us, id=i, due_ms=due, owner=owner) for i, due in pairs]
        self._history.moves += notes
        self._submit("move", {"id": ids, "due": dues}, notes)

    def _cancel(self) -> None:
        ids = self._pick()
        owner = self._sender.owner
        notes = [Cancel(self._world.now_us, id=number, owner=owner) for number in ids]
        self._history.cancels += notes
        self._submit("cancel", {"id": ids}, notes)

    # --- the protocol -------------------------------------------------------------------------

    def _submit(self, op: str, columns: dict[str, Any], notes: list[Any]) -> None:
        stream = self._streams.get(op)
        if stream is None:
            stream = self._streams[op] = Stream(op, self._connect(op))
        self._number += 1
        batch = _Batch(self._number, columns, notes)
        stream.waiting[batch.number] = batch
        self._transmit(stream, batch)

    def _connect(self, op: str) -> Connection:
        connection = Connection(self._world, self._machine.pick(TOPIC))
        connection.on_break_here = lambda: self._again(op, connection)
        return connection

    def _again(self, op: str, broken: Connection) -> None:
        """The connection broke: another one, and all that was not answered once more."""
        stream = self._streams[op]
        if stream.connection is not broken:
            return
        stream.connection, stream.writer = self._connect(op), None
        for batch in list(stream.waiting.values()):
            if op == "enqueue":
                self._transmit(stream, batch)
            else:
                # Only enqueues are remembered by number: of the others nobody knows what happened.
                del stream.waiting[batch.number]

    def _transmit(self, stream: Stream, batch: _Batch) -> None:
        connection = stream.connection
        batch.sent += 1

        def arrive() -> None:
            try:
                broker = connection.machine.require()
                if stream.writer is None:
                    producer = self._name if stream.op == "enqueue" else ""
                    stream.writer = broker.open_write(
                        WriteStream(TOPIC, stream.op, producer=producer).check(), self._sender
                    )
                stream.writer.submit(
                    batch.number,
                    record_batch(batch.columns),
                    lambda reply: connection.to_client(lambda: self._answered(stream, reply)),
                )
            except DejaQError as error:
                reply = Reply(batch.number, error=error)
                if isinstance(error, TopicUnknown) and not getattr(self._machine, "is_made", True):
                    # It may be made before the answer is there.
                    connection.to_client(stream.connection.break_it)
                else:
                    connection.to_client(lambda: self._answered(stream, reply))

        connection.to_broker(arrive)

    def _answered(self, stream: Stream, reply: Reply) -> None:
        batch = stream.waiting.get(reply.number)
        if batch is None:
            return
        if reply.error is not None:
            if self._machine.moves and isinstance(reply.error, (Elsewhere, Unavailable)):
                stream.connection.break_it()
                return
            if isinstance(reply.error, TopicUnknown) and not getattr(
                self._machine, "is_made", True
            ):
                stream.connection.break_it()
                return
            if reply.error.retry:
                delay_us = self._world.between(10_000, 200_000)
                self._world.after(delay_us, lambda: self._once_more(stream, batch))
                return
            raise AssertionError(f"{stream.op} was refused: {reply.error!r}")
        del stream.waiting[reply.number]
        now_us = self._world.now_us
        statuses = reply.all_statuses().tolist()
        for note, number, status in zip(batch.notes, reply.all_ids(), statuses, strict=True):
            fine = status == RowStatus.OK
            broker_us = self._machine.time_us
            note.answer(now_us, Outcome.OK if fine else Outcome.REFUSED, broker_us)
            if fine and isinstance(note, Send):
                note.id = int(number)
                self._known.append(note.id)
            elif isinstance(note, Send):
                note.told_id = int(number)
            elif isinstance(note, Cancel):
                note.status = status

    def _once_more(self, stream: Stream, batch: _Batch) -> None:
        if batch.number not in stream.waiting:
            return
        if stream.op == "enqueue":
            self._transmit(stream, batch)
        else:
            del stream.waiting[batch.number]


def record_batch(columns: dict[str, Any]) -> pa.RecordBatch:
    """A batch of these columns, in the types of the wire."""
    types = {
        "payload": pa.binary(),
        "due": pa.int64(),
        "id": pa.int64(),
        "priority": pa.uint16(),
        "group": pa.utf8(),
        "key": pa.utf8(),
        "expires": pa.int64(),
        "partition": pa.int32(),
        "attempts": pa.uint16(),
    }
    return pa.record_batch({name: pa.array(v, types[name]) for name, v in columns.items()})
