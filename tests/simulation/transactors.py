"""Clients that send and ack in transactions: all of it counts, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.transactions.names import family_of
from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.model import RowStatus
from dejaqueue.testing.simulation.machine import Reachable
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.checker.history import Decide, Delivery, History, Outcome, Send, Settle
from tests.simulation.clients import record_batch
from tests.simulation.scenario import GROUPS, TOPIC

FAR = 1_000 << limits.SEQUENCE_BITS
"""Apart from the ids of the other topic."""
OpenWriter = Callable[[Reply], None]


@dataclass
class _Work:
    """One transaction.

    Attributes:
        name: that the broker knows; made here as `begin_transaction` makes it.
        acks: of rows that were delivered, and whether the broker took them.
        left: batches that were not answered yet.
        failed: one was refused, or its connection broke.
    """

    name: str
    places: set[str] = field(default_factory=set)
    sends: list[Send] = field(default_factory=list)
    acks: list[Settle] = field(default_factory=list)
    left: int = 0
    failed: bool = False
    connections: dict[str, Connection] = field(default_factory=dict)


class Transactor:
    """Begins transactions, stages, and commits or aborts; one at a time.

    Attributes:
        far: another topic that it sends to, and its partitions; ids of it are noted FAR further.
    """

    def __init__(self, name: str, world: World, machine: Reachable, history: History) -> None:
        self._name = name
        self._world = world
        self._machine = machine
        self._history = history
        self._count = 0
        self._rows: list[Delivery] = []
        self.partitions = 1
        self.far: tuple[str, int] | None = None
        self.stopped = False
        self.idle = True

    def take(self, row: Delivery) -> None:
        """Ack this in a transaction, some time."""
        self._rows.append(row)

    def act(self) -> None:
        """One transaction; the next one follows it."""
        world = self._world
        if self.stopped:
            return
        self.idle = False
        now_ms, timeout_ms = self._machine.clock.now_ms(), world.random.choice([300, 2_000, 8_000])
        topic, partitions = self._topic()
        home = world.between(0, partitions - 1)
        family = family_of(NOBODY, world.random.getrandbits(128))
        work = _Work(f"{topic}/{home}/{now_ms}-{timeout_ms}-{family}")
        staged = [self._stage_sends] * world.between(1, 3)
        staged += [self._stage_acks] * bool(self._rows)
        work.left = len(staged)
        for stage in staged:
            stage(work)

    def _topic(self) -> tuple[str, int]:
        """Where something is sent, or decided."""
        if self.far is not None and self._world.chance(0.5):
            return self.far
        return TOPIC, self.partitions

    def _connect(self, topic: str, work: _Work) -> Connection:
        if topic not in work.connections:
            connection = Connection(self._world, self._machine.pick(topic))
            connection.on_break_here = lambda: self._broke(work)
            work.connections[topic] = connection
        return work.connections[topic]

    # --- staging ------------------------------------------------------------------------------

    def _stage_sends(self, work: _Work) -> None:
        world, now_us = self._world, self._world.now_us
        topic, partitions = self._topic()
        partition = world.between(0, partitions - 1)
        work.places.add(f"{topic}/{partition}")
        columns: dict[str, Any] = {"payload": [], "due": [], "group": [], "partition": []}
        sends = []
        for _ in range(world.between(1, 4)):
            self._count += 1
            due_ms = now_us // 1_000 + world.between(-500, 3_000)
            send = Send(now_us, token=f"{self._name}-{self._count}", due_ms=due_ms)
            send.transaction, send.group = work.name, world.random.choice(GROUPS)
            sends.append(send)
            columns["payload"].append(send.token.encode())
            columns["due"].append(due_ms)
            columns["group"].append(send.group)
            columns["partition"].append(partition)
        self._history.sends += sends
        work.sends += sends

        def answered(reply: Reply) -> None:
            broker_us = self._machine.time_us
            for send, number in zip(sends, reply.all_ids().tolist(), strict=True):
                send.answer(self._world.now_us, Outcome.OK, broker_us)
                send.id = number if topic == TOPIC else number + FAR

        self._stage(topic, work, "enqueue", columns, answered)

    def _stage_acks(self, work: _Work) -> None:
        rows, self._rows = self._rows[:5], self._rows[5:]
        now_us = self._world.now_us

        def noted(op: str) -> list[Settle]:
            return [
                Settle(now_us, op=op, staged=True, id=row.id, attempt=row.attempt) for row in rows
            ]

        # An abort, also one that the broker decides on, gives them back.
        acks, back = noted("ack"), noted("nack")
        self._history.settles += [*acks, *back]
        work.acks += acks
        work.places |= {f"{TOPIC}/{row.partition}" for row in rows}

        def answered(reply: Reply) -> None:
            for ack, status in zip(acks, reply.all_statuses().tolist(), strict=True):
                if status != RowStatus.OK:
                    ack.answer(self._world.now_us, Outcome.REFUSED)

        columns = {"id": [row.id for row in rows], "attempts": [row.attempt for row in rows]}
        self._stage(TOPIC, work, "ack", columns, answered)

    def _stage(
        self,
        topic: str,
        work: _Work,
        op: str,
        columns: dict[str, Any],
        answered: Callable[[Reply], None],
    ) -> None:
        connection = self._connect(topic, work)

        def came(reply: Reply) -> None:
            work.left -= 1
            if reply.error is not None:
                work.failed = True
            else:
                answered(reply)
            if not work.left:
                self._decide(work, commit=not work.failed and self._world.chance(0.8))

        def arrive() -> None:
            try:
                stream = WriteStream(topic, op, transaction=work.name).check()
                writer = connection.machine.require().open_write(stream)
                writer.submit(
                    1,
                    record_batch(columns),
                    lambda reply: connection.to_client(lambda: came(reply)),
                )
            except DejaQError as error:
                reply = Reply(1, error=error)
                connection.to_client(lambda: came(reply))

        connection.to_broker(arrive)

    def _broke(self, work: _Work) -> None:
        if work.left > 0:
            work.left = -1_000_000
            work.failed = True
            self._decide(work, commit=False)

    # --- deciding -----------------------------------------------------------------------------

    def _decide(self, work: _Work, *, commit: bool) -> None:
        note = Decide(self._world.now_us, transaction=work.name, commit=commit)
        self._history.decisions.append(note)
        wait_us = self._world.random.choice([0, 0, 1_000_000])
        self._world.after(wait_us, lambda: self._ask(work, note))

    def _ask(self, work: _Work, note: Decide) -> None:
        """Ask the broker to decide so, until it says what came of it."""
        home = work.name.partition("/")[0]
        connection = Connection(self._world, self._machine.pick(home))
        state = {"over": False}

        def again() -> None:
            if not state["over"]:
                state["over"] = True
                later_us = self._world.between(10_000, 500_000)
                self._world.after(later_us, lambda: self._ask(work, note))

        def told(error: BaseException | None) -> None:
            if state["over"]:
                return
            if isinstance(error, DejaQError) and error.retry:
                again()
                return
            state["over"] = True
            self._finish(work, note, fine=error is None)

        def answer(error: BaseException | None) -> None:
            if isinstance(error, TopicUnknown) and not getattr(self._machine, "is_made", True):
                connection.to_client(again)  # it may be made before the answer is there
            else:
                connection.to_client(partial(told, error))

        def done(future: Future[None]) -> None:
            answer(future.exception())

        def arrive() -> None:
            try:
                transactions = connection.machine.require().transactions
                places = sorted(work.places)
                transactions.decide(work.name, places, commit=note.commit).add_done_callback(done)
            except DejaQError as error:
                answer(error)

        connection.on_break_here = again
        connection.to_broker(arrive)

    def _finish(self, work: _Work, note: Decide, *, fine: bool) -> None:
        now_us = self._world.now_us
        note.answer(now_us, Outcome.OK if fine else Outcome.REFUSED, self._machine.time_us)
        counts = note.commit and fine
        for ack in work.acks:
            if ack.outcome is Outcome.UNKNOWN:
                outcome = Outcome.OK if counts else Outcome.REFUSED
                ack.answer(now_us, outcome, self._machine.time_us)
        self.idle = True
        self._world.after(self._world.between(1_000, 800_000), self.act)
