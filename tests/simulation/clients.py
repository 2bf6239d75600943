"""Clients of a simulated broker: they send, move, cancel, consume, and note all of it.

They keep to the protocol of the client library (numbers, producer names, resending after a break)
without its threads. The library itself is tested against real brokers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue.broker.dispatch import Push
from dejaqueue.broker.reading import delivery_batches
from dejaqueue.broker.session import ConsumerSession
from dejaqueue.broker.writer import Writer
from dejaqueue.errors import DejaQError
from dejaqueue.model import RowStatus
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Ping, Reply, Settle, SettleOp
from tests.checker.history import Away, Cancel, Delivery, History, Move, Outcome, Send
from tests.checker.history import Settle as SettleNote

TOPIC = "t"
GROUPS = ["a", "b", "c.x", "c.y"]


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
        known: ids that anybody may move or cancel; filled as answers come.
    """

    def __init__(
        self, name: str, world: World, machine: Machine, history: History, known: list[int]
    ) -> None:
        self._name = name
        self._world = world
        self._machine = machine
        self._history = history
        self._known = known
        self._number = 0
        self._streams: dict[str, Stream] = {}
        self._count = 0
        self.stopped = False
        self.keyed = world.chance(0.5)
        self.delay_ms_max = world.random.choice([200, 5_000, 20_000])

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
        notes, columns = [], {name: [] for name in ("payload", "due", "group", "priority")}
        keys: list[str | None] = []
        for _ in range(world.random.choice([1, 1, 2, 10, 20])):
            self._count += 1
            token = f"{self._name}-{self._count}"
            due_ms = now_us // 1_000 + world.between(-500, self.delay_ms_max)
            key = f"key-{world.between(1, 400)}" if self.keyed and world.chance(0.3) else ""
            send = Send(now_us, token=token, due_ms=due_ms, key=key)
            send.group = world.random.choice(GROUPS)
            send.priority = world.random.choice([0, 5, 32_768, 65_535])
            notes.append(send)
            columns["payload"].append(token.encode())
            columns["due"].append(due_ms)
            columns["group"].append(send.group)
            columns["priority"].append(send.priority)
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
        notes = [Move(now_us, id=i, due_ms=due) for i, due in zip(ids, dues, strict=True)]
        self._history.moves += notes
        self._submit("move", {"id": ids, "due": dues}, notes)

    def _cancel(self) -> None:
        ids = self._pick()
        notes = [Cancel(self._world.now_us, id=number) for number in ids]
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
        connection = Connection(self._world, self._machine)
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
                broker = self._machine.require()
                if stream.writer is None:
                    producer = self._name if stream.op == "enqueue" else ""
                    stream.writer = broker.open_write(
                        WriteStream(TOPIC, stream.op, producer=producer).check()
                    )
                stream.writer.submit(
                    batch.number,
                    _record_batch(batch.columns),
                    lambda reply: connection.to_client(lambda: self._answered(stream, reply)),
                )
            except DejaQError as error:
                reply = Reply(batch.number, error=error)
                connection.to_client(lambda: self._answered(stream, reply))

        connection.to_broker(arrive)

    def _answered(self, stream: Stream, reply: Reply) -> None:
        batch = stream.waiting.get(reply.number)
        if batch is None:
            return
        if reply.error is not None:
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
            broker_us = self._machine.clock.now_us()
            note.answer(now_us, Outcome.OK if fine else Outcome.REFUSED, broker_us)
            if fine and isinstance(note, Send):
                note.id = int(number)
                self._known.append(note.id)

    def _once_more(self, stream: Stream, batch: _Batch) -> None:
        if batch.number not in stream.waiting:
            return
        if stream.op == "enqueue":
            self._transmit(stream, batch)
        else:
            del stream.waiting[batch.number]


def _record_batch(columns: dict[str, Any]) -> pa.RecordBatch:
    types = {
        "payload": pa.binary(),
        "due": pa.int64(),
        "id": pa.int64(),
        "priority": pa.uint16(),
        "group": pa.utf8(),
        "key": pa.utf8(),
    }
    return pa.record_batch({name: pa.array(v, types[name]) for name, v in columns.items()})


class Consumer:
    """Takes messages, and acks, gives back, extends or forgets them."""

    def __init__(self, number: int, world: World, machine: Machine, history: History) -> None:
        self._world = world
        self._machine = machine
        self._history = history
        self._number = number
        self._lives = 0
        self._dispatch = 0
        self._settle_number = 0
        self._session: ConsumerSession | None = None
        self._connection: Connection | None = None
        self.credit = world.random.choice([1, 10, 200])
        self.lease_ms = world.random.choice([500, 2_000, 10_000])
        self.careless = world.random.choice([0.0, 0.1, 0.2])
        self.drains = False
        self._holds = True

    @property
    def name(self) -> str:
        """Of its present life."""
        return f"c{self._number}.{self._lives}"

    def begin(self) -> None:
        """Connect and ask for messages; again a little later if there is no broker."""
        self._lives += 1
        connection = Connection(self._world, self._machine)
        self._connection = connection
        name = self.name
        options = ConsumeStream(TOPIC, name, self.lease_ms, 50, self._world.chance(0.7)).check()
        self._holds = options.holds
        sink = _Sink(self, connection, name)
        sessions: list[ConsumerSession] = []

        def lost() -> None:
            self._history.aways.append(Away(name, self._world.now_us))
            self._world.after(self._world.between(1_000, 500_000), self.begin)

        connection.on_break_here = lost
        connection.on_break_there = lambda: [s.close(release=False) for s in sessions] and None

        def open_it() -> None:
            try:
                broker = self._machine.require()
                session = broker.open_consume(options, sink)
            except DejaQError:
                connection.break_it()
                return
            sessions.append(session)
            session.credit(self.credit)
            self._ping(connection, session)

        self._session_of = sessions
        connection.to_broker(open_it)

    def _ping(self, connection: Connection, session: ConsumerSession) -> None:
        """What the library's clock offset is good for; here both clocks are one."""
        session.ping(Ping(1, self._machine.clock.now_us(), 0, 1_000))

        def again() -> None:
            if connection.open:
                connection.to_broker(lambda: self._ping(connection, session))

        self._world.after(2_000_000, again)

    def lose(self) -> None:
        """Its connection breaks."""
        if self._connection is not None:
            self._connection.break_it()

    def receive(self, connection: Connection, rows: list[Delivery]) -> None:
        """A delivery has arrived: hold what is not due yet, then work on it."""
        for row in rows:
            wait_us = row.due_ms * 1_000 - self._machine.clock.now_us() if self._holds else 0
            self._world.after(wait_us, lambda row=row: self._work(connection, row))

    def _work(self, connection: Connection, row: Delivery) -> None:
        if not connection.open:
            return
        world = self._world
        row.handed_broker_us = self._machine.clock.now_us()
        careless = 0.0 if self.drains else self.careless
        what = world.random.random()
        if what < careless:
            pass  # forgotten: its lease ends
        elif what < 2 * careless:
            self._settle(connection, row, SettleOp.NACK, world.between(0, 1_000))
        elif what < 2.5 * careless:
            self._settle(connection, row, SettleOp.EXTEND, self.lease_ms)
            later = world.between(1_000, 3_000_000)
            world.after(later, lambda: self._settle(connection, row, SettleOp.ACK))
        else:
            delay_us = world.between(0, 500) if not careless else world.between(0, 1_500_000)
            world.after(delay_us, lambda: self._settle(connection, row, SettleOp.ACK))
        connection.to_broker(lambda: [s.credit(1) for s in self._session_of] and None)

    def _settle(
        self, connection: Connection, row: Delivery, op: SettleOp, argument_ms: int = 0
    ) -> None:
        if not connection.open:
            return
        note = SettleNote(self._world.now_us, op=op.name.lower(), id=row.id, attempt=row.attempt)
        if op is SettleOp.EXTEND:
            note.lease_end_ms = self._machine.clock.now_ms() + argument_ms
        self._history.settles.append(note)
        self._settle_number += 1
        settle = Settle(
            op,
            self._settle_number,
            argument_ms=argument_ms,
            ids=np.array([row.id], np.int64),
            attempts=np.array([row.attempt], np.uint16),
        )

        def answered(reply: Reply) -> None:
            if reply.error is not None:
                return  # unknown
            fine = not reply.all_statuses().any()
            note.answer(self._world.now_us, Outcome.OK if fine else Outcome.REFUSED)

        def arrive() -> None:
            for session in self._session_of:
                session.settle(settle, lambda r: connection.to_client(lambda: answered(r)))

        connection.to_broker(arrive)

    def note(self, push: Push, name: str) -> list[Delivery]:
        """The deliveries of a push, noted as the broker sends them."""
        [batch] = delivery_batches([push])
        self._dispatch += 1
        rows = []
        names = ("id", "payload", "attempts", "due", "group", "priority")
        columns = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        for place, (number, payload, attempt, due_ms, group, priority) in enumerate(columns):
            rows.append(
                Delivery(
                    number,
                    payload.decode(),
                    attempt,
                    due_ms,
                    self._world.now_us,
                    self._machine.clock.now_us(),
                    -1,
                    push.leased.lease_end_ms,
                    name,
                    push.partition,
                    (self._dispatch, place),
                    group or "",
                    priority,
                )
            )
        self._history.deliveries += rows
        return rows


class _Sink:
    """The broker's way to a consumer."""

    def __init__(self, consumer: Consumer, connection: Connection, name: str) -> None:
        self._consumer, self._connection, self._name = consumer, connection, name

    def push(self, push: Push) -> None:
        """Read the rows, as the stream's thread would, and send them."""
        rows = self._consumer.note(push, self._name)
        self._connection.to_client(lambda: self._consumer.receive(self._connection, rows))

    def end(self, error: DejaQError) -> None:
        """The broker goes away."""
        self._connection.break_it()
