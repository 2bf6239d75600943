"""Clients that make topics, send, alter, delete and make them again, each at any broker; others
send meanwhile.

Judged here: what was acknowledged since the topic was made is there at the end, nothing of the
topics of that name before it is, no id is given twice, and nobody is told that a living topic is
unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.model import Topic
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.checker.fault import Fault
from tests.simulation.cluster.machines import Cluster

FAR_AHEAD_MS = 3_600_000
WAIT_US = 15_000_000
"""Who got no answer for so long asks another broker."""
BESIDE_US = 2_000_000
"""So long after a deletion was begun others may still send to the topic."""

BESIDE = "beside"

Told = Callable[[Any, BaseException | None], None]


@dataclass
class Remaker:
    """One topic name, made again and again.

    Attributes:
        ends_gone: it is deleted in the end, and nothing of it may stay.
        stopped: nothing new is begun.
        given: ids of messages of all topics that had the name.
        idle: nothing is under way.
        faults: what was seen to be wrong.
    """

    name: str
    world: World
    cluster: Cluster
    ends_gone: bool
    stopped: bool = False
    idle: bool = True
    lives: int = 0
    acknowledged: set[str] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)

    def act(self) -> None:
        """Make it, and go on from there."""
        if self.stopped:
            return
        self.idle = False
        self.lives += 1
        self.acknowledged = set()
        topic = Topic(self.name, partitions=self.world.random.choice([1, 1, 2]))
        self._until_done(partial(Broker.create_topic, topic=topic, exist_ok=True), self._made)

    def _made(self, _: Any) -> None:
        self._use(self.world.between(0, 4))

    def _use(self, left: int) -> None:
        """Send and alter some more, then delete."""
        if left == 0 or (self.stopped and self.ends_gone):
            for _ in range(self.world.random.choice([0, 1, 3])):
                self.world.after(self.world.between(0, BESIDE_US), self._send_beside)
            self._until_done(partial(Broker.delete_topic, name=self.name), self._deleted, gone=True)
        elif self.stopped:
            self.idle = True
        elif self.world.chance(0.3):
            lease_ms = self.world.between(1_000, 60_000)
            alter = partial(Broker.alter_topic, name=self.name, changes={"lease_ms": lease_ms})
            self._until_done(alter, lambda _: self._later(left))
        else:
            self._send(left)

    def _later(self, left: int) -> None:
        self.world.after(self.world.between(1_000, 1_500_000), lambda: self._use(left - 1))

    def _deleted(self, _: Any) -> None:
        wait_us = self.world.random.choice([0, 0, 1_000, 400_000])
        self.world.after(wait_us, self._again)

    def _again(self) -> None:
        if self.stopped and self.ends_gone:
            self.lives, self.idle = 0, True
        else:  # also at the end, so that there is something to look at
            was, self.stopped = self.stopped, False
            self.act()
            self.stopped = was

    def _send(self, left: int) -> None:
        token, send = self._sending(str(self.lives))

        def sent(reply: Reply) -> None:
            self.acknowledged.add(token)
            self._note_ids(reply)
            self._later(left)

        self._ask(send, sent)

    def _send_beside(self) -> None:
        """As somebody who knows nothing of a deletion: it lands in this topic, the next, or none.

        Nobody asks again, and whether it is there does not matter; its id is its own.
        """
        _, send = self._sending(BESIDE)
        connection = Connection(self.world, self.cluster.pick(self.name))

        def told(reply: Reply, error: BaseException | None) -> None:
            if error is None:
                connection.to_client(lambda: self._note_ids(reply))

        def arrive() -> None:
            with suppress(DejaQError):
                send(connection.machine.require(), told)

        connection.to_broker(arrive)
        self.world.after(WAIT_US, connection.break_it)

    def _sending(self, life: str) -> tuple[str, Callable[[Broker, Told], None]]:
        """A new token, and what sends it."""
        token = f"{self.name}.{life}.{self.world.random.getrandbits(40):010x}"
        due_ms = self.world.now_us // 1_000 + FAR_AHEAD_MS
        batch = pa.record_batch({"payload": pa.array([token.encode()]), "due": pa.array([due_ms])})

        def send(broker: Broker, told: Told) -> None:
            def replied(reply: Reply) -> None:
                told(reply, reply.error)

            broker.open_write(WriteStream(self.name)).submit(1, batch, replied)

        return token, send

    def _note_ids(self, reply: Reply) -> None:
        ids = {int(one) for one in reply.all_ids()}
        for again in sorted(ids & self.given):
            self._fault(f"id {again} was given twice by topics {self.name}")
        self.given |= ids

    def look(self) -> None:
        """See what is there in the end."""
        if self.lives:
            peek = {"topic": self.name, "limit": 1_000}
            self._until_done(lambda broker: next(broker.read("peek", peek)[1]), self._seen)

    def _seen(self, batch: pa.RecordBatch) -> None:
        there = {payload.decode() for payload in batch.column("payload").to_pylist()}
        for token in sorted(self.acknowledged - there):
            self._fault(f"{token} was acknowledged and is gone from topic {self.name}")
        for token in sorted(there):
            if not token.startswith((f"{self.name}.{self.lives}.", f"{self.name}.{BESIDE}.")):
                self._fault(f"{token} is of a topic {self.name} that was deleted")

    def _fault(self, text: str) -> None:
        self.faults.append(Fault(1, text))

    # --- asking brokers -------------------------------------------------------------------------

    def _until_done(
        self, call: Callable[[Broker], Any], then: Callable[[Any], None], *, gone: bool = False
    ) -> None:
        """A call that answers when it returns."""
        self._ask(lambda broker, told: told(call(broker), None), then, gone=gone)

    def _ask(
        self,
        call: Callable[[Broker, Told], None],
        then: Callable[[Any], None],
        *,
        gone: bool = False,
        tries: int = 0,
    ) -> None:
        """Have a broker do something, again at another one until it is done.

        Args:
            gone: once it may have been done, it is fine that there is no such topic.
        """
        connection = Connection(self.world, self.cluster.pick(self.name))
        state = {"over": False}

        def once() -> bool:
            was, state["over"] = state["over"], True
            return not was

        def again() -> None:
            if once():
                wait_us = self.world.between(1_000, 300_000)
                more = partial(self._ask, call, then, gone=gone, tries=tries + 1)
                self.world.after(wait_us, more)

        def told(answer: Any, error: BaseException | None) -> None:
            if error is None or (gone and tries and isinstance(error, TopicUnknown)):
                if once():
                    then(answer)
                return
            if isinstance(error, TopicUnknown):
                self._fault(f"topic {self.name} is there, and a broker said it is not")
            elif not (isinstance(error, DejaQError) and error.retry):
                self._fault(f"topic {self.name}: {error!r}")
            again()

        def from_broker(answer: Any, error: BaseException | None) -> None:
            connection.to_client(lambda: told(answer, error))

        def arrive() -> None:
            try:
                call(connection.machine.require(), from_broker)
            except DejaQError as error:
                from_broker(None, error)

        connection.on_break_here = again
        connection.to_broker(arrive)
        self.world.after(WAIT_US, connection.break_it)


def leftovers(cluster: Cluster) -> list[Fault]:
    """What is kept of topics that are gone, when everything had time to end."""
    catalogues = [m.node._catalogue for m in cluster.machines if m.node is not None]
    known = [catalogue for catalogue in catalogues if catalogue is not None]
    if not known:
        return []
    catalogue = known[0]
    catalogue.refresh()
    journals = {topic for topic, _ in cluster.server.kept.logs} - catalogue.words()
    texts = [
        *(f"topic {topic} was deleted, and nobody finishes that" for topic in catalogue.leaving()),
        *(f"journals {name} are of no topic" for name in sorted(journals)),
    ]
    return [Fault(1, text) for text in texts]
