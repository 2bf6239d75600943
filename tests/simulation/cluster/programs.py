"""Programs of a simulated cluster that use the client library as people do.

Each notes what it did and saw. It is a process of its own, whose machine has a clock of its own,
and may be killed at any moment; another one takes its place. What they do is written with the
synchronous client; programs_aio.py has the other face.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dejaqueue.client import Client
from dejaqueue.client.results import SendResult
from dejaqueue.errors import DejaQError, DuplicateKey, Elsewhere, Refused, TopicUnknown, Unavailable
from dejaqueue.model import RowStatus
from dejaqueue.testing.simulation.world import World
from tests.checker.history import Cancel, Decide, Delivery, History, Move, Outcome, Send, Settle
from tests.simulation.cluster.client_fibers import ClientProcess
from tests.simulation.cluster.machines import Cluster
from tests.simulation.cluster.plan import has_shards
from tests.simulation.cluster.watch import Watch
from tests.simulation.cluster.wire import Wire
from tests.simulation.scenario import GROUPS

SECOND = 1_000_000
DRIFT_PPM_MAX = 20
"""Of a machine's clock: two of them stay within what the library allows for (offset.DRIFT_PPM)."""
LEASE_MS = (1_000, 3_000, 10_000)


@dataclass
class Town:
    """What all programs of a simulation share.

    Attributes:
        known: ids that anybody may try to move or cancel, by topic.
        stopped: nothing new is begun; what was taken is settled with care.
        killed: programs that were killed, kept so that nothing of them is cleared up early.
    """

    world: World
    cluster: Cluster
    history: History
    watch: Watch
    wire: Wire
    topic: str
    far: str
    known: dict[str, list[int]] = field(default_factory=dict)
    stopped: bool = False
    killed: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of the cluster, any broker first."""
        names = [machine.name for machine in self.cluster.machines if not machine.is_gone]
        self.world.random.shuffle(names)
        if has_shards(self.world.seed):  # the one that stays among them; see membership.py
            names = ["a", *names]
        return "dejaq://" + ",".join(f"{name}:1" for name in names[:3])


class Program:
    """One program: it has a client, and does things until the town stops."""

    def __init__(self, name: str, town: Town) -> None:
        self.name, self.town = name, town
        self.world, self.history = town.world, town.history
        self.lives = self.count = 0
        self.process: ClientProcess | None = None
        self.client: Any = None
        self.over = True

    def begin(self) -> None:
        """Start the program, anew if it was killed; once there are topics to use."""
        if not self.town.cluster.is_made:
            self.world.after(SECOND // 10, self.begin)
            return
        random = self.world.random
        self.lives += 1
        skew_us = random.choice([0, 0, 3 * SECOND, -3 * SECOND, 3_600 * SECOND])
        drift_ppm = self.world.between(-DRIFT_PPM_MAX, DRIFT_PPM_MAX)
        self.process = ClientProcess(f"{self.name}.{self.lives}", self.world, skew_us, drift_ppm)
        self.over = False
        self.process.start(self._run)

    def lose(self) -> None:
        """Its connections break, or the program is killed."""
        one = self.process
        if one is None:
            return
        if self.over or self.town.stopped or self.world.chance(0.7):
            self.town.wire.lose(one)
            return
        self.town.killed.append((one, self.client))
        one.kill()
        for core in self.client._core._consumers if self.client is not None else ():
            for one_of in (core, *getattr(core, "_shards", ())):
                one_of._closed = True  # or Python closes it when it clears up, who knows when
        self.killed()
        self.client, self.over = None, True
        self.world.after(self.world.between(1_000, SECOND), self.begin)

    def killed(self) -> None:
        """What is to be noted of a program that was killed."""

    def _run(self) -> None:
        try:
            self._open()
            self.work()
            self.client.close()
        finally:
            self.over = True

    def _open(self) -> None:
        retry_ms = self.world.random.choice([5_000, 30_000])
        self.client = Client(self.town.url, name=self.name, retry_ms_max=retry_ms)

    def work(self) -> None:
        """What it does."""
        raise NotImplementedError

    def pause(self, longest_us: int) -> None:
        """Do nothing for a while."""
        assert self.process is not None
        self.process.fibers.pass_time(self.world.between(1_000, longest_us))

    @property
    def broker_us(self) -> int:
        """The latest time that any broker may have seen."""
        return self.town.cluster.time_us

    def token(self) -> str:
        """A payload that no other message has."""
        self.count += 1
        return f"{self.name}-{self.count}"

    def fields(self, send: Send, topic: str) -> dict[str, Any]:
        """Arguments of a message."""
        random = self.world.random
        send.due_ms = self.world.now_us // 1_000 + self.world.between(-500, 4_000)
        send.group = random.choice(GROUPS)
        send.priority = random.choice([0, 5, 32_768, 65_535])
        if has_shards(self.world.seed) and self.world.chance(0.4):
            send.group = ""  # a shard is chosen by turns
        group = send.group or None
        more: dict[str, Any] = {"due": send.due_ms, "group": group, "priority": send.priority}
        if topic == self.town.topic and self.world.chance(0.2):
            send.key = f"key-{self.world.between(1, 200)}"
            more["key"] = send.key
        if self.world.chance(0.2):
            more["tags"] = random.sample(["red", "green", "blue"], 2)
        if self.world.chance(0.1):
            more["headers"] = {"for": "somebody"}
        return more

    def is_fine(self, error: DejaQError) -> bool:
        """Whether a program may get this."""
        return error.retry or isinstance(error, Unavailable | Elsewhere)


class Sender(Program):
    """Sends in every way there is, moves and cancels.

    Attributes:
        pace_us: between two of these, at most.
    """

    pace_us = 300_000

    def work(self) -> None:
        ways: list[Callable[[], None]] = [self._one, self._batch, self._producer, self._change]
        while not self.town.stopped:
            try:
                self.world.random.choice(ways)()
            except DejaQError as error:
                assert self.is_fine(error), f"{self.name}: {error!r}"
            self.pause(self.pace_us)

    def _new(self, count: int) -> tuple[list[Send], list[dict[str, Any]]]:
        topic = self.town.topic
        sends = [Send(self.world.now_us, token=self.token()) for _ in range(count)]
        rows = [{"payload": send.token.encode(), **self.fields(send, topic)} for send in sends]
        self.history.sends += sends
        return sends, rows

    def _sent(self, send: Send, message_id: int) -> None:
        if send.key and self.history.on_duplicate == "keep":
            return  # it may be the id of another one, which was kept
        self._ok(send, message_id)

    def _ok(self, send: Send, message_id: int) -> None:
        send.id = message_id
        send.answer(self.world.now_us, Outcome.OK, self.broker_us)
        self.town.known.setdefault(self.town.topic, []).append(message_id)

    def _refused(self, send: Send) -> None:
        send.answer(self.world.now_us, Outcome.REFUSED, self.broker_us)

    def _one(self) -> None:
        [send], [row] = self._new(1)
        try:
            self._sent(send, self.client.send(self.town.topic, row.pop("payload"), **row))
        except (DuplicateKey, Refused):
            self._refused(send)

    def _batch(self) -> None:
        sends, rows = self._new(self.world.between(1, 40))
        self._note(sends, self.client.send_batch(self.town.topic, rows))

    def _note(self, sends: list[Send], result: SendResult) -> None:
        pairs = zip(result.ids.tolist(), result.statuses.tolist(), strict=True)
        for send, (message_id, status) in zip(sends, pairs, strict=True):
            if status == RowStatus.OK:
                self._ok(send, message_id)
            else:
                self._refused(send)

    def _producer(self) -> None:
        count = self.world.between(1, 30)
        linger_ms = self.world.random.choice([0, 5, 50])
        topic, sent = self.town.topic, []
        with self.client.producer(topic, batch_rows=7, linger_ms=linger_ms, window=3) as producer:
            for _ in range(count):
                [send], [row] = self._new(1)
                sent.append((send, producer.send(row.pop("payload"), **row)))
                if self.world.chance(0.2):
                    self.pause(20_000)
            sends, rows = self._new(3)
            batch = producer.send_batch(rows)
        for send, future in sent:
            try:
                self._sent(send, future.result())
            except (DuplicateKey, Refused):
                self._refused(send)
            except DejaQError as error:
                assert self.is_fine(error), f"{self.name}: {error!r}"
        self._note(sends, batch.result())

    def _change(self) -> None:
        topic = self.town.topic
        known = self.town.known.get(topic, [])
        if not known:
            return
        now_us = self.world.now_us
        ids = list(dict.fromkeys(self.world.random.choices(known, k=self.world.between(1, 5))))
        if self.world.chance(0.6):
            due_ms = now_us // 1_000 + self.world.between(-100, 4_000)
            moves = [Move(now_us, id=one, due_ms=due_ms) for one in ids]
            self.history.moves += moves
            notes: list[Any] = list(moves)
            settled = self.client.move(topic, ids=ids, due=due_ms)
        else:
            notes = [Cancel(now_us, id=one) for one in ids]
            self.history.cancels += notes
            settled = self.client.cancel(topic, ids=ids)
        for note, status in zip(notes, settled.statuses.tolist(), strict=True):
            outcome = Outcome.OK if status == RowStatus.OK else Outcome.REFUSED
            note.answer(self.world.now_us, outcome, self.broker_us)


class Taker(Program):
    """Consumes, one by one or in batches, and acks, gives back, extends or forgets."""

    def __init__(self, name: str, town: Town, topic: str) -> None:
        super().__init__(name, town)
        self.topic = topic
        self.apart = town.watch.apart[topic]
        self.taken: list[Any] = []

    def killed(self) -> None:
        self.taken.clear()

    def work(self) -> None:
        random = self.world.random
        while not (self.town.stopped and self._is_drained):
            many = self.world.chance(0.3)
            named = {
                "prefetch": random.choice([1, 10, 300]),
                "lease_ms": random.choice(LEASE_MS),
                "auto_extend": self.world.chance(0.7),
                "idle_ms": random.choice([200, 2_000, 10_000]),
                "name": self.name,
            }
            if self.world.chance(0.2):
                named["max_messages"] = self.world.between(1, 20)
            try:
                if many:
                    with self.client.consume_batches(self.topic, batch_rows=10, **named) as batches:
                        for batch in batches:
                            self._work_batch(batch)
                else:
                    with self.client.consume(self.topic, **named) as messages:
                        for message in messages:
                            self._work(message)
            except DejaQError as error:
                assert self.is_fine(error), f"{self.name}: {error!r}"
            except _WorkFailedError:
                pass
            self.pause(200_000)

    _is_drained = False

    def finish(self) -> None:
        """There is nothing more to come."""
        self._is_drained = True

    def _handed(self, message_id: int, attempt: int) -> Delivery:
        row = self.town.watch.handed(self.topic, message_id, attempt)
        assert row is not None, f"{self.name} was handed {message_id}, which nobody sent to it"
        return row

    def _noted(self, op: str, rows: list[Delivery]) -> list[Settle]:
        now_us = self.world.now_us
        notes = [Settle(now_us, op=op, id=row.id, attempt=row.attempt) for row in rows]
        self.history.settles += notes
        self.town.watch.settled.update((row.id, row.attempt) for row in rows)
        return notes

    def _answered(self, notes: list[Settle], statuses: list[int]) -> None:
        for note, status in zip(notes, statuses, strict=True):
            outcome = Outcome.OK if status == RowStatus.OK else Outcome.REFUSED
            if status != RowStatus.OK and self.town.watch.arrived[note.id, note.attempt] > 1:
                outcome = Outcome.UNKNOWN
            note.answer(self.world.now_us, outcome, self.broker_us)

    def _work(self, message: Any) -> None:
        row = self._handed(message.id, message.attempt)
        assert row.token.encode() == message.payload, f"{self.name}: another payload"
        what = self.world.random.random() if not self.town.stopped else 1.0
        rows = [row]
        if what < 0.05:
            return  # forgotten: with its lease, or when this consumer ends, it goes to others
        if what < 0.08:
            self._noted("nack", rows)  # the consumer's end gives back what was taken last
            raise _WorkFailedError
        if what < 0.15:
            notes = self._noted("nack", rows)
            delay_s = self.world.random.choice([None, 0, 0.5])
            self._answered(notes, [message.nack(delay=delay_s)])
            return
        if what < 0.25:
            # Noted where it arrives (watch.py): the library extends, too.
            message.extend(self.world.random.choice(LEASE_MS) / 1_000)
        if what < 0.5:
            self.pause(self.world.random.choice([20_000, 400_000, 2_500_000]))
        notes = self._noted("ack", rows)
        if what < 0.7:
            message.ack(wait=False)
        else:
            self._answered(notes, [message.ack(wait=True)])

    def _work_batch(self, batch: Any) -> None:
        pairs = zip(batch.ids.tolist(), batch.attempts.tolist(), strict=True)
        rows = [self._handed(*pair) for pair in pairs]
        what = self.world.random.random() if not self.town.stopped else 1.0
        if what < 0.1:
            return
        if what < 0.2:
            half = len(rows) // 2
            if half:
                notes = self._noted("nack", rows[:half])
                self._answered(notes, batch.take(list(range(half))).nack().statuses.tolist())
            notes = self._noted("ack", rows[half:])
            rest = batch.take(list(range(half, len(rows))))
            self._answered(notes, rest.ack().statuses.tolist())
            return
        if what < 0.5:
            self.pause(1_500_000)
        notes = self._noted("ack", rows)
        self._answered(notes, batch.ack().statuses.tolist())


class _WorkFailedError(Exception):
    """The work on a message failed."""


class Transactor(Program):
    """Takes, sends and acks in transactions over two topics."""

    def work(self) -> None:
        while not self.town.stopped:
            consumer = None
            try:
                consumer = self.client.consume(
                    self.town.topic, prefetch=5, lease_ms=10_000, idle_ms=500, name=self.name
                )
                for message in consumer:
                    row = self.town.watch.handed(self.town.topic, message.id, message.attempt)
                    assert row is not None
                    self._transact(message, row)
                    if self.town.stopped:
                        break
            except DejaQError as error:
                assert self.is_fine(error) or isinstance(error, Refused), f"{error!r}"
            finally:
                if consumer is not None:
                    self._close(consumer)
            self._transact(None, None)
            self.pause(500_000)

    def _close(self, consumer: Any) -> None:
        try:
            consumer.close()
        except DejaQError as error:
            assert self.is_fine(error), f"{error!r}"

    def _transact(self, message: Any, row: Delivery | None) -> None:
        town, world = self.town, self.world
        commits = world.chance(0.8)
        transaction = self.client.transaction(timeout=world.random.choice([0.5, 2, 8]))
        sends: list[Send] = []
        acks: list[Settle] = []
        backs: list[Settle] = []
        try:
            for _ in range(world.between(1, 3)):
                topic = world.random.choice([town.topic, town.far])
                sends += self._stage(transaction, topic)
            if row is not None:
                now_us = world.now_us
                acks.append(Settle(now_us, op="ack", staged=True, id=row.id, attempt=row.attempt))
                backs.append(Settle(now_us, op="nack", staged=True, id=row.id, attempt=row.attempt))
                self.history.settles += [*acks, *backs]
                self.town.watch.settled.add((row.id, row.attempt))
                transaction.ack(message)
            if world.chance(0.3):
                self.pause(SECOND)
        except DejaQError as error:
            assert self.is_fine(error) or isinstance(error, Refused), f"{error!r}"
            commits = False
        name = transaction.name or f"never begun {self.name} {self.lives} {self.count}"
        for send in sends:
            send.transaction = name
        note = Decide(world.now_us, transaction=name, commit=commits)
        self.history.decisions.append(note)
        outcome = Outcome.OK
        try:
            if commits:
                transaction.commit()
            else:
                transaction.abort()
        except Refused:
            outcome = Outcome.REFUSED
        except DejaQError as error:
            assert self.is_fine(error), f"{error!r}"
            return  # unknown
        note.answer(world.now_us, outcome, self.broker_us)
        counts = commits and outcome is Outcome.OK
        for ack in acks:
            ack.answer(world.now_us, Outcome.OK if counts else Outcome.REFUSED, self.broker_us)

    def _stage(self, transaction: Any, topic: str) -> list[Send]:
        apart = self.town.watch.apart[topic]
        sends = [Send(self.world.now_us, token=self.token()) for _ in range(2)]
        rows = []
        for send in sends:
            send.transaction = transaction.name or "not begun yet"
            rows.append({"payload": send.token.encode(), **self.fields(send, topic)})
            send.key = ""
            rows[-1].pop("key", None)
        self.history.sends += sends
        try:
            result = transaction.send_batch(topic, rows)
        finally:
            for send in sends:
                send.transaction = transaction.name or send.transaction
        for send, number in zip(sends, result.ids.tolist(), strict=True):
            send.id = number + apart
            send.answer(self.world.now_us, Outcome.OK, self.broker_us)
        return sends


class Looker(Program):
    """Asks what there is to ask; every answer must be one."""

    def _soon_ms(self) -> int:
        return self.world.now_us // 1_000 + self.world.between(0, 5_000)

    def _span(self) -> dict[str, int]:
        now_ms = self.world.now_us // 1_000
        return {"due_from": now_ms - 20_000, "due_to": now_ms + 20_000}

    def work(self) -> None:
        client, topic = self.client, self.town.topic
        calls: list[Callable[[], Any]] = [
            lambda: client.topics(),
            lambda: client.topic(topic),
            lambda: client.stats(topic),
            lambda: client.stats(),
            lambda: client.cluster(),
            lambda: client.cluster(topic),
            lambda: client.transactions(topic),
            lambda: client.connect(),
            lambda: client.alter_topic(topic, lease_ms=self.world.between(500, 9_000)),
            lambda: client.peek(topic, limit=20),
            lambda: client.counts(topic),
            lambda: client.counts(topic, by="tag"),
            lambda: client.histogram(topic, bucket=1, **self._span()),
            lambda: client.move_where(topic, due=self._soon_ms(), dry_run=True, **self._span()),
            lambda: client.cancel_where(topic, dry_run=True, tags_any=["red"]),
            lambda: client.send_batch(topic, []),
            lambda: client.assignments(topic),
        ]
        while not self.town.stopped:
            try:
                self.world.random.choice(calls)()
            except DejaQError as error:
                assert not isinstance(error, TopicUnknown), f"{self.name}: {error!r}"
                assert self.is_fine(error), f"{self.name}: {error!r}"
            self.pause(SECOND)
