"""What brokers of a simulated cluster sent to real clients and heard from them, for the judge.

The judge needs to know when a broker sent a message and until when it was leased. A program that
uses the library sees neither, nor what the library does by itself: extending leases, giving back
what it does not hand over. So that is noted where it arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.testing.simulation.world import World
from dejaqueue.topic_names import topic_of
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Reply, Settle, SettleOp
from tests.checker.history import Away, Delivery, History, Outcome
from tests.checker.history import Settle as SettleNote
from tests.simulation.cluster.machines import Cluster, ClusterMachine
from tests.simulation.consumers import AHEAD_MS_MAX


class Watch:
    """Notes what happens on streams of consumers.

    Args:
        topics: whose messages are judged, and what is added to ids of each in notes, so that those
            of two topics are not one.

    Attributes:
        rows: deliveries by topic, id and attempt.
        settled: (id, attempt) of what a program has begun to settle.
        latest: the last attempt of each id.
        arrived: how often a settle of an attempt has arrived, by id and attempt. The library sends
            it again when the reply was lost; then LEASE_LOST may be the first one's doing.
        ahead_ms: `lease_ahead_ms` of these topics.
    """

    def __init__(
        self, world: World, cluster: Cluster, history: History, topics: dict[str, int]
    ) -> None:
        self.world, self.cluster, self.history = world, cluster, history
        self.apart = topics
        self.rows: dict[tuple[str, int, int], Delivery] = {}
        self.settled: set[tuple[int, int]] = set()
        self.latest: dict[int, int] = {}
        self.arrived: Counter[tuple[int, int]] = Counter()
        self.streams = 0
        self.ahead_ms = AHEAD_MS_MAX

    def stream(self, machine: ClusterMachine) -> WatchedStream:
        """Of a consumer that opens one."""
        self.streams += 1
        return WatchedStream(self, machine, self.streams)

    def handed(self, topic: str, message_id: int, attempt: int) -> Delivery | None:
        """A program was handed a message now; None = of a topic that is not judged."""
        row = self.rows.get((topic, message_id, attempt))
        if row is not None:
            row.handed_broker_us = self.cluster.time_us
        return row

    def rows_of(self, topic: str, ids: Any, attempts: Any) -> list[Delivery]:
        """The deliveries that are meant."""
        topic = topic_of(topic)  # of a shard its topic
        pairs = zip(ids.tolist(), attempts.tolist(), strict=True)
        found = [self.rows.get((topic, *pair)) for pair in pairs]
        return [row for row in found if row is not None]

    def released(self, rows: list[Delivery]) -> None:
        """The library gives these back: they may go to others."""
        now_us = self.world.now_us
        self.history.settles += [
            SettleNote(now_us, op="nack", id=row.id, attempt=row.attempt) for row in rows
        ]

    def extended(
        self,
        rows: list[Delivery],
        machine: ClusterMachine,
        length_ms: int,
        reply: Callable[[Reply], Any],
    ) -> Callable[[Reply], Any]:
        """Leases are to be extended, whether a program asked for it or the library did so itself;
        what is to be called with the reply."""
        now_us, end_ms = self.world.now_us, machine.clock.now_ms() + length_ms
        notes = [
            SettleNote(now_us, op="extend", id=row.id, attempt=row.attempt, lease_end_ms=end_ms)
            for row in rows
        ]
        self.history.settles += notes

        def answered(answer: Reply) -> None:
            # Of a lease those rows are extended that are still under it.
            if answer.error is None and not answer.all_statuses().any():
                for note in notes:
                    pair = note.id, note.attempt
                    if pair not in self.settled and self.latest[note.id] == note.attempt:
                        note.answer(self.world.now_us, Outcome.OK, self.cluster.time_us)
            reply(answer)

        return answered


class WatchedStream:
    """One stream of a consumer."""

    def __init__(self, watch: Watch, machine: ClusterMachine, number: int) -> None:
        self._watch, self._machine = watch, machine
        self._number, self._dispatch = number, 0
        self._by_lease: dict[tuple[int, int], list[Delivery]] = {}
        self._apart: int | None = None
        self._topic = self._name = ""
        self._lease_ms = 0

    def begin(self, options: ConsumeStream, broker: Broker) -> None:
        """It opens."""
        self._topic, self._name = topic_of(options.topic), f"{options.consumer}.{self._number}"
        self._apart = self._watch.apart.get(self._topic)
        self._lease_ms = options.lease_ms

    def pushed(self, push: Push, batch: pa.RecordBatch) -> None:
        """A broker sends this."""
        if self._apart is None:
            return
        watch = self._watch
        self._dispatch += 1
        rows = []
        names = ("id", "payload", "attempts", "due", "group", "priority")
        columns = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        end_ms = push.leased.lease_end_ms
        for place, (number, payload, attempt, due_ms, group, priority) in enumerate(columns):
            row = Delivery(
                number + self._apart,
                payload.decode(),
                attempt,
                due_ms,
                watch.world.now_us,
                self._machine.time_us,
                -1,
                end_ms,
                self._name,
                push.partition + (self._apart >> limits.SEQUENCE_BITS),
                (self._dispatch, place),
                group or "",
                priority,
                end_ms - self._lease_ms - watch.ahead_ms,
            )
            rows.append(row)
            watch.rows[self._topic, number, attempt] = row
            watch.latest[row.id] = attempt
        self._by_lease[push.partition, push.leased.lease_id] = rows
        watch.history.deliveries += rows

    def _rows_of(self, settle: Settle) -> list[Delivery]:
        if settle.ids is not None and settle.attempts is not None:
            return self._watch.rows_of(self._topic, settle.ids, settle.attempts)
        leases = [settle.lease_id] if settle.lease_ids is None else settle.lease_ids.tolist()
        keys = [(settle.partition, lease) for lease in leases]
        return [row for key in keys for row in self._by_lease.get(key, [])]

    def settled(self, settle: Settle, reply: Callable[[Reply], Any]) -> Callable[[Reply], Any]:
        """A settle has arrived; what is to be called with the reply."""
        if self._apart is None:
            return reply
        if settle.op is not SettleOp.EXTEND and not settle.release:
            self._watch.arrived.update((row.id, row.attempt) for row in self._rows_of(settle))
            return reply
        if settle.op is SettleOp.EXTEND:
            length_ms = settle.argument_ms or self._lease_ms
            return self._watch.extended(self._rows_of(settle), self._machine, length_ms, reply)
        self._watch.released(self._rows_of(settle))
        return reply

    def closed(self) -> None:
        """Its consumer says that it ends: what it holds may go to others."""
        if self._apart is not None:
            self._watch.history.aways.append(Away(self._name, self._watch.world.now_us))
