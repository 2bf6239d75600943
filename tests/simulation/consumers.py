"""Consumers of a simulated broker: they take messages, settle or forget them, and note it all."""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.consumers.gathering import delivery_batches
from dejaqueue.broker.topic.session import ConsumerSession
from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.schema import dead_letters
from dejaqueue.schema.cron import HEADER_ENTRY, HEADER_FIRING
from dejaqueue.testing.simulation.machine import Reachable
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Ping, Reply, Settle, SettleOp
from tests.checker.history import Away, Delivery, Firing, History, Letter, Outcome
from tests.checker.history import Settle as SettleNote
from tests.simulation.scenario import TOPIC
from tests.simulation.transactors import FAR, Transactor

AHEAD_MS_MAX = 25
"""How long before its due time a message may be leased: Topic.lease_ahead_ms."""


class Consumer:
    """Takes messages, and acks, gives back, extends or forgets them."""

    topic = TOPIC
    apart = 0
    """What is added to ids when they are noted, so that those of two topics are not one."""

    def __init__(self, number: int, world: World, machine: Reachable, history: History) -> None:
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
        self.transactor: Transactor | None = None
        self._holds = True

    @property
    def name(self) -> str:
        """Of its present life."""
        return f"c{self._number}.{self._lives}"

    def begin(self) -> None:
        """Connect and ask for messages; again a little later if there is no broker."""
        self._lives += 1
        connection = Connection(self._world, self._machine.pick(self.topic))
        self._connection = connection
        name = self.name
        options = ConsumeStream(
            self.topic, name, self.lease_ms, 50, self._world.chance(0.7)
        ).check()
        self._holds = options.holds
        sink = _Sink(self, connection, name)
        sessions: list[ConsumerSession] = []

        def lost() -> None:
            self._history.aways.append(Away(name, self._world.now_us))
            self._world.after(self._world.between(1_000, 500_000), self.begin)

        def lost_there() -> None:
            for session in sessions:
                session.close(release=False)

        connection.on_break_here = lost
        connection.on_break_there = lost_there

        def open_it() -> None:
            try:
                broker = connection.machine.require()
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
        session.ping(Ping(1, connection.machine.clock.now_us(), 0, 1_000))

        def again() -> None:
            if connection.open:
                connection.to_broker(lambda: self._ping(connection, session))

        self._world.after(2_000_000, again)

    def lose(self) -> None:
        """Its connection breaks."""
        if self._connection is not None:
            self._connection.break_it()

    def gone(self, error: TopicUnknown) -> None:
        """What it consumes is not there any more; topics are never deleted."""
        raise AssertionError(f"a living topic was called unknown: {error}")

    def receive(self, connection: Connection, rows: list[Delivery]) -> None:
        """A delivery has arrived: hold what is not due yet, then work on it."""
        for row in rows:
            self._hold(connection, row)

    def _hold(self, connection: Connection, row: Delivery) -> None:
        """Wait until it is due by the broker's clock, which may run slower than ours."""
        clock = connection.machine.clock
        wait_us = row.due_ms * 1_000 - clock.now_us() if self._holds else 0
        if wait_us > 0 and connection.open:
            self._world.after(wait_us, lambda: self._hold(connection, row))
        else:
            self._world.after(0, lambda: self._work(connection, row))

    def _work(self, connection: Connection, row: Delivery) -> None:
        if not connection.open:
            return
        world = self._world
        row.handed_broker_us = self._machine.time_us
        careless = 0.0 if self.drains else self.careless
        what = world.random.random()
        if what < careless:
            pass  # forgotten: its lease ends
        elif what < 2 * careless:
            self._settle(connection, row, SettleOp.NACK, world.between(0, 1_000))
        elif what < 2.2 * careless and self.transactor is not None:
            self.transactor.take(row)
        elif what < 2.5 * careless:
            self._settle(connection, row, SettleOp.EXTEND, self.lease_ms)
            later = world.between(1_000, 3_000_000)
            world.after(later, lambda: self._settle(connection, row, SettleOp.ACK))
        else:
            delay_us = world.between(0, 500) if not careless else world.between(0, 1_500_000)
            world.after(delay_us, lambda: self._settle(connection, row, SettleOp.ACK))
        connection.to_broker(self._give_credit)

    def _give_credit(self) -> None:
        for session in self._session_of:
            session.credit(1)

    def _settle(
        self, connection: Connection, row: Delivery, op: SettleOp, argument_ms: int = 0
    ) -> None:
        if not connection.open:
            return
        note = SettleNote(self._world.now_us, op=op.name.lower(), id=row.id, attempt=row.attempt)
        if op is SettleOp.EXTEND:
            note.lease_end_ms = connection.machine.clock.now_ms() + argument_ms
        self._history.settles.append(note)
        self._settle_number += 1
        settle = Settle(
            op,
            self._settle_number,
            argument_ms=argument_ms,
            ids=np.array([row.id - self.apart], np.int64),
            attempts=np.array([row.attempt], np.uint16),
        )

        def answered(reply: Reply) -> None:
            if reply.error is not None:
                return  # unknown
            fine = not reply.all_statuses().any()
            outcome = Outcome.OK if fine else Outcome.REFUSED
            note.answer(self._world.now_us, outcome, self._machine.time_us)

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
                    number + self.apart,
                    payload.decode(),
                    attempt,
                    due_ms,
                    self._world.now_us,
                    self._machine.time_us,
                    -1,
                    push.leased.lease_end_ms,
                    name,
                    push.partition + (self.apart >> limits.SEQUENCE_BITS),
                    (self._dispatch, place),
                    group or "",
                    priority,
                    push.leased.lease_end_ms - self.lease_ms - AHEAD_MS_MAX,
                )
            )
        self.keep(rows, batch.column("headers").to_pylist())
        return rows

    def keep(self, rows: list[Delivery], headers: list[list[tuple[str, str]] | None]) -> None:
        """Note what was delivered."""
        self._history.deliveries += rows


class _Sink:
    """The broker's way to a consumer."""

    def __init__(self, consumer: Consumer, connection: Connection, name: str) -> None:
        self._consumer, self._connection, self._name = consumer, connection, name

    def push(self, push: Push) -> None:
        """Read the rows, as the stream's thread would, and send them."""
        rows = self._consumer.note(push, self._name)
        self._connection.to_client(lambda: self._consumer.receive(self._connection, rows))

    def end(self, error: DejaQError) -> None:
        """The broker goes away, or the topic to another one."""
        if isinstance(error, TopicUnknown):
            self._consumer.gone(error)
        self._connection.break_it()


class FarConsumer(Consumer):
    """Takes what transactions have sent to another topic."""

    apart = FAR

    def __init__(
        self, number: int, world: World, machine: Reachable, history: History, topic: str
    ) -> None:
        super().__init__(number, world, machine, history)
        self.topic = topic


class _Reader(Consumer):
    """Acks everything it gets; what it gets means something of its own."""

    def __init__(self, number: int, world: World, machine: Reachable, history: History) -> None:
        super().__init__(number, world, machine, History())
        self._kept_in = history
        self.careless = 0.0
        self.credit = 100


class LetterReader(_Reader):
    """Reads dead letters."""

    topic = f"{TOPIC}.dead"

    def keep(self, rows: list[Delivery], headers: list[list[tuple[str, str]] | None]) -> None:
        """Note the letters."""
        for row, pairs in zip(rows, headers, strict=True):
            said = dict(pairs or ())
            letter = Letter(
                row.id,
                row.token,
                row.pushed_us,
                said.get(dead_letters.REASON, ""),
                int(said.get(dead_letters.ATTEMPTS, -1)),
                said.get(dead_letters.ORIGIN, ""),
                int(said.get(dead_letters.ORIGIN_ID, -1)),
                int(said.get(dead_letters.DIED_AT, -1)),
            )
            self._kept_in.letters.append(letter)


class FiringReader(_Reader):
    """Reads what cron entries made."""

    topic = "cron"

    def keep(self, rows: list[Delivery], headers: list[list[tuple[str, str]] | None]) -> None:
        """Note the firings."""
        for row, pairs in zip(rows, headers, strict=True):
            said = dict(pairs or ())
            firing = Firing(
                row.id, said.get(HEADER_ENTRY, ""), int(said.get(HEADER_FIRING, -1)), row.pushed_us
            )
            self._kept_in.firings.append(firing)
