"""A client that commits transactions in a topic and deletes that, whoever was told by then.

Judged here: what a transaction sent to other topics is there in all of them, or in none; what was
answered as committed is there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.transactions.names import family_of
from dejaqueue.errors import DejaQError
from dejaqueue.model import Topic
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.simulation.cluster.remakers import FAR_AHEAD_MS, WAIT_US, Remaker

FIRST_SEED = 1_000_000
"""Seeds below go on as they did, those that once found something among them."""


def has_homes(seed: int) -> bool:
    """Whether a seed deletes homes of transactions."""
    return seed >= FIRST_SEED and seed % 2 == 0


@dataclass
class HomeRemover(Remaker):
    """One topic name, made again and again, in which transactions over others are decided.

    Attributes:
        tokens: what was sent to all others, by transaction.
        committed: transactions that were answered so.
        seen: what there is at the end, by topic.
    """

    tokens: dict[str, str] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    seen: dict[str, set[str]] = field(default_factory=dict)

    @property
    def others(self) -> tuple[str, ...]:
        """The topics that take part; by their names at several brokers."""
        return tuple(f"{self.name}{other}" for other in "abcd")

    def act(self) -> None:
        """Make what is not there, and go on from there."""
        if self.stopped:
            return
        self.idle = False
        self.lives += 1
        self._make([self.name, *self.others])

    def _make(self, names: list[str]) -> None:
        if not names:
            self._stage()
            return
        make = partial(Broker.create_topic, topic=Topic(names[0]), exist_ok=True)
        self._until_done(make, lambda _: self._make(names[1:]))

    def _stage(self) -> None:
        world = self.world
        now_ms, timeout_ms = self.cluster.clock.now_ms(), world.random.choice([2_000, 8_000])
        family = family_of(NOBODY, world.random.getrandbits(128))
        name = f"{self.name}/0/{now_ms}-{timeout_ms}-{family}"
        self.tokens[name] = f"{world.random.getrandbits(40):010x}"
        left = list(self.others)

        def staged(fine: bool) -> None:
            if not fine:
                self._delete()  # it is aborted, or nobody decides it
            elif left:
                topic = left.pop()
                self._once(topic, partial(self._send_half, topic, name), staged)
            else:
                self._commit(name)

        staged(True)

    def _send_half(
        self, topic: str, name: str, broker: Broker, told: Callable[[Any], None]
    ) -> None:
        due_ms = self.world.now_us // 1_000 + FAR_AHEAD_MS
        payload = pa.array([self.tokens[name].encode()])
        batch = pa.record_batch({"payload": payload, "due": pa.array([due_ms])})
        stream = WriteStream(topic, transaction=name).check()

        def replied(reply: Reply) -> None:
            told(reply.error)

        broker.open_write(stream).submit(1, batch, replied)

    def _commit(self, name: str) -> None:
        """Ask for it, and delete the topic at some time: before the answer, or after it."""

        def ask(broker: Broker, told: Callable[[Any], None]) -> None:
            def done(future: Future[None]) -> None:
                told(future.exception())

            places = [f"{topic}/0" for topic in self.others]
            broker.transactions.decide(name, places, commit=True).add_done_callback(done)

        def answered(fine: bool) -> None:
            if fine:
                self.committed.add(name)

        self._once(self.name, ask, answered)
        if self.world.chance(0.5):  # somebody is away just now
            machine = self.world.random.choice(self.cluster.machines)
            if machine.is_up:
                longest_us = 3_000_000 // self.cluster.plan.haste
                machine.pause(self.world.between(longest_us // 10, longest_us))
        self.world.after(self.world.random.choice([2_000, 5_000, 20_000, 500_000]), self._delete)

    def _delete(self) -> None:
        delete = partial(Broker.delete_topic, name=self.name)
        self._until_done(delete, self._deleted, gone=True)

    def _again(self) -> None:
        if self.stopped:
            self.idle = True
        else:
            self.act()

    def _once(
        self,
        topic: str,
        call: Callable[[Broker, Callable[[Any], None]], None],
        then: Callable[[bool], None],
    ) -> None:
        """Have a broker do something, and hear whether it has; nobody asks again."""
        connection = Connection(self.world, self.cluster.pick(topic))
        state = {"over": False}

        def over(fine: bool) -> None:
            if not state["over"]:
                state["over"] = True
                then(fine)

        def told(error: Any) -> None:
            connection.to_client(lambda: over(error is None))

        def arrive() -> None:
            try:
                call(connection.machine.require(), told)
            except DejaQError as error:
                told(error)

        connection.on_break_here = lambda: over(False)
        connection.to_broker(arrive)
        self.world.after(WAIT_US, connection.break_it)

    # --- what is there in the end -----------------------------------------------------------------

    def look(self) -> None:
        """See what is there in the end."""
        for topic in self.others if self.lives else ():
            peek = {"topic": topic, "limit": 10_000}

            def read(broker: Broker, peek: dict[str, Any] = peek) -> pa.RecordBatch:
                return next(broker.read("peek", peek)[1])

            self._until_done(read, partial(self._noted, topic))

    def _noted(self, topic: str, batch: pa.RecordBatch) -> None:
        self.seen[topic] = {one.decode() for one in batch.column("payload").to_pylist()}
        if len(self.seen) < len(self.others):
            return
        for name, token in self.tokens.items():
            there = [token in self.seen[topic] for topic in self.others]
            if any(there) and not all(there):
                self._fault(f"transaction {name} counts in one topic and not in another")
            elif name in self.committed and not any(there):
                self._fault(f"transaction {name} was answered as committed, and is gone")
