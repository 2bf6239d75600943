"""Few keys, topics and transactions that many clients ask at once, each at any broker of a cluster.

Each call is made once and noted with what was answered; no answer = unknown. Judged is whether the
answers are a linear order (tests/checker/linear_registers.py), while the same things break as in
any simulated cluster.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.broker.transactions.names import family_of
from dejaqueue.errors import (
    DejaQError,
    Elsewhere,
    Refused,
    TopicExists,
    TopicUnknown,
)
from dejaqueue.model import OnDuplicate, RowStatus, Topic, TopicKind
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.checker.fault import Fault
from tests.checker.history import Cancel, Decide, History, Look, Outcome, Send
from tests.checker.linear import Call
from tests.checker.linear_registers import (
    EXISTS,
    GONE,
    Calls,
    judge_linear,
    judge_topics,
)
from tests.simulation.clients import record_batch
from tests.simulation.cluster.coordinators import coordinators_in_fibers
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.cluster.machines import Cluster
from tests.simulation.cluster.membership import Membership
from tests.simulation.cluster.plan import Plan, choose_plan
from tests.simulation.consumers import Consumer
from tests.simulation.run import SECOND, Run
from tests.simulation.scenario import TOPIC, Scenario
from tests.simulation.transactors import FAR

KEYS = ("k1", "k2", "k3")
TOPICS = ("d1", "d2")
OTHER = "u"
FAR_AHEAD_MS = 3_600_000
WAIT_US = 15 * SECOND
DRAIN_SECONDS = 20
Told = Callable[[Any, BaseException | None], None]


@dataclass
class Registers:
    """What is asked, and what was answered.

    Attributes:
        history: of keys and transactions.
        topics, glimpses: calls of topics, and looks at what transactions have staged.
        faults: what is wrong whatever else was answered.
    """

    world: World
    cluster: Cluster
    history: History
    partitions: dict[str, int]
    topics: Calls = field(default_factory=lambda: defaultdict(list))
    glimpses: Calls = field(default_factory=lambda: defaultdict(list))
    faults: list[Fault] = field(default_factory=list)
    stopped: bool = False
    _count: int = 0
    _connections: list[Connection] = field(default_factory=list)

    def lose(self) -> None:
        """Connections break."""
        for connection in list(self._connections):
            connection.break_it()

    def begin(self) -> None:
        """Ask, and go on asking."""
        for act, count in ((self._key, 4), (self._topic, 4), (self._transact, 2), (self._peer, 2)):
            for _ in range(count):
                self.world.after(self.world.between(0, SECOND), partial(self._go_on, act))

    def _go_on(self, act: Callable[[Callable[[], None]], None]) -> None:
        if self.stopped:
            return

        def then() -> None:
            self.world.after(self.world.between(1_000, 400_000), partial(self._go_on, act))

        act(then)

    # --- one call -----------------------------------------------------------------------------

    def ask(
        self, topic: str, call: Callable[[Broker, Told], None], then: Told, *, anywhere: bool
    ) -> None:
        """Have a broker do something, once.

        Args:
            then: told the answer, or an error; a TimeoutError: nobody knows.
            anywhere: ask any broker; else mostly its owner.
        """
        machines = self.cluster.machines
        machine = self.world.random.choice(machines) if anywhere else self.cluster.pick(topic)
        connection = Connection(self.world, machine)
        self._connections.append(connection)
        over: list[bool] = []

        def told(answer: Any, error: BaseException | None) -> None:
            if not over:
                over.append(True)
                self._connections.remove(connection)
                then(answer, error)

        def from_broker(answer: Any, error: BaseException | None) -> None:
            connection.to_client(lambda: told(answer, error))

        def arrive() -> None:
            try:
                call(connection.machine.require(), from_broker)
            except DejaQError as error:
                from_broker(None, error)

        connection.on_break_here = lambda: told(None, TimeoutError())
        connection.to_broker(arrive)
        self.world.after(WAIT_US, connection.break_it)

    def _write(
        self, stream: WriteStream, columns: dict[str, Any], then: Told, *, topic: str
    ) -> None:
        def write(broker: Broker, told: Told) -> None:
            writer = broker.open_write(stream.check())
            writer.submit(1, record_batch(columns), lambda reply: told(reply, reply.error))

        self.ask(topic, write, then, anywhere=False)

    def _token(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"

    # --- keys ---------------------------------------------------------------------------------

    def _key(self, then: Callable[[], None]) -> None:
        key, chance = self.world.random.choice(KEYS), self.world.random.random()
        if chance < 0.4:
            self._send(key, then)
        elif chance < 0.65:
            self._cancel(key, then)
        else:
            self.look(key, then)

    def _send(self, key: str, then: Callable[[], None]) -> None:
        now_us = self.world.now_us
        due_ms = now_us // 1_000 + self.world.random.choice([0, 300, FAR_AHEAD_MS])
        note = Send(now_us, token=self._token(key), due_ms=due_ms, key=key)
        self.history.sends.append(note)

        def told(reply: Reply, error: BaseException | None) -> None:
            if error is None:
                fine = reply.all_statuses()[0] == RowStatus.OK
                note.answer(self.world.now_us, Outcome.OK if fine else Outcome.REFUSED)
                note.id, note.told_id = -1, int(reply.all_ids()[0])
                if fine:
                    note.id, note.told_id = note.told_id, -1
            elif isinstance(error, Elsewhere):
                self.history.sends.remove(note)
            then()

        columns = {"payload": [note.token.encode()], "due": [due_ms], "key": [key]}
        self._write(WriteStream(TOPIC), columns, told, topic=TOPIC)

    def _cancel(self, key: str, then: Callable[[], None]) -> None:
        note = Cancel(self.world.now_us, key=key)
        self.history.cancels.append(note)

        def told(reply: Reply, error: BaseException | None) -> None:
            if error is None:
                note.status = int(reply.all_statuses()[0])
                fine = note.status == RowStatus.OK
                note.answer(self.world.now_us, Outcome.OK if fine else Outcome.REFUSED)
            elif isinstance(error, Elsewhere):
                self.history.cancels.remove(note)
            then()

        self._write(WriteStream(TOPIC, "cancel"), {"key": [key]}, told, topic=TOPIC)

    def look(self, key: str, then: Callable[[], None], machine: int = -1) -> None:
        """See which message has a key."""
        note = Look(self.world.now_us, key=key)
        self.history.looks.append(note)

        def told(batch: pa.RecordBatch, error: BaseException | None) -> None:
            if error is None:
                note.answer(self.world.now_us, Outcome.OK)
                if batch.num_rows:
                    note.id = batch.column("id")[0].as_py()
                    note.token = batch.column("payload")[0].as_py().decode()
                if batch.num_rows > 1:
                    self._fault(11, f"key {key} has {batch.num_rows} messages")
            then()

        peek = {"topic": TOPIC, "keys": [key], "limit": 10}
        self.ask(
            TOPIC,
            lambda broker, t: t(next(broker.read("peek", peek)[1]), None),
            told,
            anywhere=False,
        )

    def _fault(self, rule: int, text: str) -> None:
        self.faults.append(Fault(rule, text))

    # --- topics -------------------------------------------------------------------------------

    def _topic(self, then: Callable[[], None]) -> None:
        random = self.world.random
        name, chance = random.choice(TOPICS), random.random()
        lease_ms = random.choice([1_000, 2_000, 3_000])
        if chance < 0.2:
            self._call_topic("create", name, lease_ms, then)
        elif chance < 0.3:
            self._call_topic("create or equal", name, lease_ms, then)
        elif chance < 0.45:
            self._call_topic("alter", name, lease_ms, then)
        elif chance < 0.55:
            self._call_topic("delete", name, None, then)
        else:
            self.describe(name, then)

    def describe(self, name: str, then: Callable[[], None]) -> None:
        """Ask any broker for a topic's settings."""
        self._call_topic("describe", name, None, then)

    def _call_topic(self, op: str, name: str, lease_ms: Any, then: Callable[[], None]) -> None:
        called_us = self.world.now_us

        def call(broker: Broker) -> Any:
            if op == "describe":
                return broker.topic(name, newest=True).lease_ms
            if op == "alter":
                broker.alter_topic(name, {"lease_ms": lease_ms})
            elif op == "delete":
                broker.delete_topic(name)
            else:
                topic = Topic(name, lease_ms=lease_ms)
                broker.create_topic(topic, exist_ok=op == "create or equal")
            return "OK"

        def told(answer: Any, error: BaseException | None) -> None:
            if isinstance(error, TopicUnknown):
                answer = GONE
            elif isinstance(error, TopicExists):
                answer = EXISTS
            elif error is not None:
                answer = None
                if isinstance(error, DejaQError) and not error.retry:
                    self._fault(1, f"topic {name}, {op}: {error!r}")
            now_us = self.world.now_us
            self.topics[name].append(Call(op, lease_ms, answer, called_us, now_us))
            then()

        self.ask(name, lambda broker, t: t(call(broker), None), told, anywhere=True)

    # --- transactions -------------------------------------------------------------------------

    def _transact(self, then: Callable[[], None]) -> None:
        """Stage in both topics; two clients decide, who may not mean the same."""
        world = self.world
        home = world.random.choice([TOPIC, OTHER])
        until_ms = world.random.choice([300, 2_000, 8_000])
        family = family_of(NOBODY, world.random.getrandbits(128))
        name = f"{home}/0/{self.cluster.clock.now_ms()}-{until_ms}-{family}"
        places = [
            (topic, world.between(0, self.partitions[topic] - 1))
            for topic in world.random.choices([TOPIC, OTHER], k=world.between(1, 3))
        ]
        left = [len(places)]

        def staged() -> None:
            left[0] -= 1
            if left[0]:
                return
            means = world.random.choice([(True,), (True, True), (True, False), (False,)])
            left[0] = len(means)
            for commit in means:
                self._decide(name, sorted(set(places)), commit, decided)

        def decided() -> None:
            left[0] -= 1
            if not left[0]:
                then()

        for topic, partition in places:
            self._stage(name, topic, partition, staged)

    def _stage(self, name: str, topic: str, partition: int, then: Callable[[], None]) -> None:
        now_us = self.world.now_us
        notes = [
            Send(now_us, token=self._token("x"), transaction=name)
            for _ in range(self.world.between(1, 3))
        ]
        self.history.sends += notes

        def told(reply: Reply, error: BaseException | None) -> None:
            if error is None:
                for note, number in zip(notes, reply.all_ids().tolist(), strict=True):
                    note.answer(self.world.now_us, Outcome.OK)
                    note.id = number if topic == TOPIC else number + FAR
            then()

        columns = {
            "payload": [note.token.encode() for note in notes],
            "due": [now_us // 1_000 + FAR_AHEAD_MS] * len(notes),
            "partition": [partition] * len(notes),
        }
        self._write(WriteStream(topic, transaction=name), columns, told, topic=topic)

    def _decide(
        self,
        name: str,
        places: list[tuple[str, int]],
        commit: bool,
        then: Callable[[], None],
    ) -> None:
        note = Decide(self.world.now_us, transaction=name, commit=commit)
        self.history.decisions.append(note)
        participants = [f"{topic}/{partition}" for topic, partition in places]

        def told(_: Any, error: BaseException | None) -> None:
            if error is None:
                note.answer(self.world.now_us, Outcome.OK)
            elif isinstance(error, Refused) and not error.retry:
                note.answer(self.world.now_us, Outcome.REFUSED)
            then()

        def call(broker: Broker, t: Told) -> None:
            future = broker.transactions.decide(name, participants, commit=commit)
            future.add_done_callback(lambda done: t(None, done.exception()))

        self.ask(name.partition("/")[0], call, told, anywhere=False)

    def _peer(self, then: Callable[[], None]) -> None:
        """See what a partition shows of transactions."""
        topic = self.world.random.choice([TOPIC, OTHER])
        self.see(topic, self.world.between(0, self.partitions[topic] - 1), then)

    def see(self, topic: str, partition: int, then: Callable[[], None]) -> None:
        """See what a partition shows of transactions."""
        called_us = self.world.now_us
        place = partition + (0 if topic == TOPIC else FAR >> limits.SEQUENCE_BITS)
        known: dict[str, set[str]] = defaultdict(set)
        for send in self.history.sends:
            is_here = send.id >> limits.SEQUENCE_BITS == place
            if send.transaction and send.outcome is Outcome.OK and is_here:
                known[send.transaction].add(send.token)

        def told(batch: pa.RecordBatch, error: BaseException | None) -> None:
            if error is None:
                there = {payload.decode() for payload in batch.column("payload").to_pylist()}
                for name, tokens in known.items():
                    if tokens & there and tokens - there:
                        self._fault(12, f"partition {place} shows a part of {name}")
                    op = "see" if tokens & there else "miss"
                    seen = Call(op, str(place), "OK", called_us, self.world.now_us)
                    self.glimpses[name].append(seen)
            then()

        peek = {"topic": topic, "partition": partition, "limit": 1_000}
        self.ask(
            topic,
            lambda broker, t: t(next(broker.read("peek", peek)[1]), None),
            told,
            anywhere=False,
        )

    # --- the end ------------------------------------------------------------------------------

    def look_at_all(self) -> None:
        """See everything once more, from several brokers."""

        def nothing() -> None:
            pass

        for name in TOPICS:  # whatever became of it, it can be made
            self._call_topic("create or equal", name, 1_000, nothing)
        for _ in range(4):
            for key in KEYS:
                self.look(key, nothing)
            for name in TOPICS:
                self.describe(name, nothing)
            for topic, count in self.partitions.items():
                for partition in range(count):
                    self.see(topic, partition, nothing)


def _scenario(world: World) -> Scenario:
    topic = Topic(
        TOPIC,
        partitions=world.random.choice([1, 2]),
        lease_ms=world.random.choice([500, 3_000]),
        on_duplicate=world.random.choice(list(OnDuplicate)),
    )
    return Scenario(
        topic,
        transacts=False,
        fires=False,
        grows=False,
        steps_back=False,
        drifts=False,
        fills=False,
    )


@coordinators_in_fibers()
def simulate_registers(seed: int, haste: int = 1, plan: Plan | None = None) -> Run:
    """Run a seed.

    Args:
        haste: it is so many times shorter, and things break so many times as often.
        plan: what the cluster is like; None = the seed says it.
    """
    world = World(seed)
    plan = plan or choose_plan(seed, haste)
    Writer._spread = itertools.count()
    random = world.random
    cluster = Cluster(world, random.choice([2, 3, 3]), random.choice([0.0, 0.0, 0.02]), plan)
    scenario = _scenario(world)
    other = replace(scenario.topic, name=OTHER)
    history = History(kind=str(TopicKind.TIMELINE), on_duplicate=str(scenario.topic.on_duplicate))
    scenarios = (scenario, replace(scenario, topic=other))
    for machine in cluster.machines:
        machine.on_start += [one.make_topics for one in scenarios]
        machine.start()
    count = scenario.topic.partitions
    registers = Registers(world, cluster, history, {TOPIC: count, OTHER: count})
    consumer = Consumer(0, world, cluster, history)
    world.after(world.between(0, SECOND), consumer.begin)
    registers.begin()
    end_us = world.now_us + random.choice([3, 5, 7]) * SECOND // plan.haste
    faults = ClusterFaults(world, cluster, scenario, [consumer], [registers], end_us)
    faults.begin()
    if plan.moves:
        Membership(world, cluster, end_us).begin()
    world.run(end_us)
    faults.heal()
    consumer.drains = True
    registers.stopped = True
    world.run(world.now_us + DRAIN_SECONDS * SECOND)
    registers.look_at_all()
    world.run(world.now_us + 5 * SECOND)
    found = [
        *registers.faults,
        *judge_linear(history, registers.glimpses),
        *judge_topics(registers.topics),
    ]
    for machine in cluster.machines:
        machine.die(power_cut=False)
    return Run.of(world, history, found, cluster.deaths, dict(registers.topics))
