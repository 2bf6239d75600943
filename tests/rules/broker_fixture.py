"""A broker on a virtual clock, and consumers that note what they get.

Not covered here: the wire and the client (tests/integration), real crashes (tests/crash).
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue.access.senders import NOBODY, Requester, Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.consumers.gathering import readable_batches
from dejaqueue.broker.letters.carrier import Arrived
from dejaqueue.broker.letters.parcel import Parcel
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.client.transport import Delivery
from dejaqueue.errors import DejaQError, TopicUnknown, TryLater
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings, ClockSettings, DispatchSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Ping, Reply, Settle, SettleOp
from tests.patience import PATIENCE_SECONDS

TOPIC = "t"
COPIES_MAX = 10
"""Of a directory whose broker goes on meanwhile, until no file went while it was copied."""

APPEND_SECONDS = 5.0
"""An append to a journal that does not hang is over by then."""


def _is_settled(core: PartitionCore) -> bool:
    return core.commits.is_settled or core.commits.is_broken


def settle(*brokers: Broker) -> None:
    """Return when all partitions have done what there is to do at this time."""

    def partitions() -> Iterator[tuple[ServedTopic, int]]:
        for broker in brokers:
            for name in broker.serving():
                with suppress(TopicUnknown, TryLater):  # somebody deletes it, or takes it over
                    runtime = broker.runtime(name)
                    yield from ((runtime, number) for number in runtime.partitions.numbers)

    for _ in range(2):  # the second look runs in a later step than whatever waited before
        for runtime, number in partitions():
            with suppress(TopicUnknown, TryLater):
                runtime.look(number, lambda place: None).result(PATIENCE_SECONDS)
    # What was decided is sent when it is durable, which the committer sees to beside the steps.
    end, pause = time.monotonic() + APPEND_SECONDS, threading.Event()
    for runtime, number in partitions():
        with suppress(TopicUnknown, TryLater):
            while not runtime.look(number, _is_settled).result(PATIENCE_SECONDS):
                if time.monotonic() > end:
                    break  # a journal that hangs, on purpose
                pause.wait(0.001)


def noting(
    carry: Callable[..., None], arrivals: queue.SimpleQueue[DejaQError | None]
) -> Callable[..., None]:
    """`Carrier.carry` that rings when a parcel arrived, or did not."""

    def noting_one(parcel: Parcel, journal: Journal, arrived: Arrived) -> None:
        def noted(rows: int, error: DejaQError | None) -> None:
            arrived(rows, error)
            arrivals.put(error)

        carry(parcel, journal, noted)

    return noting_one


@dataclass
class Got:
    """One delivered batch."""

    partition: int
    lease_id: int
    lease_end_ms: int
    batch: pa.RecordBatch

    @property
    def payloads(self) -> list[bytes]:
        found: list[bytes] = self.batch.column("payload").to_pylist()
        return found

    @property
    def ids(self) -> list[int]:
        found: list[int] = self.batch.column("id").to_pylist()
        return found

    @property
    def attempts(self) -> list[int]:
        found: list[int] = self.batch.column("attempts").to_pylist()
        return found


class RecordingConsumer:
    """A consumer with a lot of credit that notes its deliveries."""

    def __init__(
        self, fixture: BrokerFixture, *, topic: str = TOPIC, credit: int = 1_000, **options: Any
    ) -> None:
        self._fixture = fixture
        self._queue: queue.SimpleQueue[Push | Delivery] = queue.SimpleQueue()
        self.session = fixture.broker.open_consume(ConsumeStream(topic, **options), self)
        if credit:
            self.session.credit(credit)

    def push(self, push: Push | Delivery) -> None:
        self._queue.put(push)

    def end(self, error: DejaQError) -> None:
        self.ended_by = error

    def get(self) -> Got:
        push = self._queue.get(timeout=PATIENCE_SECONDS)
        if isinstance(push, Delivery):
            head = push.head
            return Got(head.partition, head.lease_id, head.lease_end_ms, push.batch)
        leased = push.leased
        [batch] = readable_batches([push], self._fixture.now_ms)  # as servers do
        return Got(push.partition, leased.lease_id, leased.lease_end_ms, batch)

    def take_all(self) -> list[Got]:
        """What has arrived by now, when the broker has done all it can do at this time."""
        self._fixture.settle_down()
        got = []
        while not self._queue.empty():
            got.append(self.get())
        return got

    def payloads(self) -> list[bytes]:
        return [payload for got in self.take_all() for payload in got.payloads]

    def knows_its_clock(self) -> None:
        self.session.ping(Ping(1, self._fixture.clock.now_us(), 0, 10))

    def settle(self, op: SettleOp, **fields: Any) -> Reply:
        future: Future[Reply] = Future()
        self.session.settle(Settle(op, number=1, **fields), future.set_result)
        return future.result(PATIENCE_SECONDS)

    def ack(self, got: Got) -> Reply:
        return self.settle(SettleOp.ACK, partition=got.partition, lease_id=got.lease_id)

    def ack_rows(self, ids: list[int], attempts: list[int]) -> Reply:
        return self.settle(SettleOp.ACK, ids=np.array(ids), attempts=np.array(attempts, np.uint16))


class BrokerFixture:
    """A broker whose time is moved by hand.

    Args:
        path: directory of the segment journal; None = memory.
        topic: settings of the topic.
        dispatch: settings of it.
        payloads: where large payloads are kept; None = with the others.
    """

    def __init__(
        self,
        path: Path | None = None,
        snapshot_entries: int = 20_000,
        snapshot_interval_ms: int = 300_000,
        dispatch: dict[str, int] | None = None,
        payloads: PayloadSettings | None = None,
        **topic: Any,
    ) -> None:
        self._payloads = payloads or PayloadSettings()
        self._snapshots: dict[str, Any] = {
            "snapshot_entries": snapshot_entries,
            "snapshot_interval_ms": snapshot_interval_ms,
        }
        self._dispatch = {"consumer_silence_ms_max": 1_000_000_000} | (dispatch or {})
        self.clock = VirtualClock()
        self.path = path
        self.topic_settings = topic
        self.arrivals: queue.SimpleQueue[DejaQError | None] = queue.SimpleQueue()
        self.broker = self._start()
        self.broker.create_topic(Topic(TOPIC, **topic), exist_ok=True)

    def _start(self) -> Broker:
        url = "memory:" if self.path is None else str(self.path)
        settings = BrokerSettings(
            journal=JournalSettings(
                url=url, segment_bytes=1 << 20, reserve_bytes=1 << 20, **self._snapshots
            ),
            dispatch=DispatchSettings(**self._dispatch),
            clock=ClockSettings(),
            payloads=self._payloads,
        )
        broker = Broker(settings, self.clock)
        broker.start()
        broker.carrier.carry = noting(broker.carrier.carry, self.arrivals)  # type: ignore[method-assign]
        return broker

    def letters_arrive(self, parcels: int = 1) -> None:
        """Return when so many parcels of dead letters arrived, and their messages are buried."""
        for _ in range(parcels):
            error = self._arrival()
            assert error is None, error
        self.settle_down()

    def _arrival(self) -> DejaQError | None:
        return self.arrivals.get(timeout=PATIENCE_SECONDS)

    def peek(
        self, topic: str = TOPIC, *, sender: Sender = NOBODY, **ticket: Any
    ) -> list[dict[str, Any]]:
        _, [page] = self.broker.read("peek", {"topic": topic, **ticket}, Requester(sender))
        rows = page.to_pylist()
        return [row | {"headers": dict(row["headers"] or ())} for row in rows]

    def counts(self, topic: str = TOPIC) -> dict[str, Any]:
        return self.broker.call("stats", {"topic": topic})

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def restart(self) -> None:
        """Stop gracefully and start again on the same journal."""
        self.broker.stop()
        self.broker = self._start()

    def crash(self) -> None:
        """Go on with what is on the disk now: the broker has no chance to do anything more."""
        assert self.path is not None
        left = self.path
        self.path = left.with_name(f"{left.name}-after")
        for tries in range(COPIES_MAX, 0, -1):
            try:
                shutil.copytree(left, self.path)
                break
            except shutil.Error:  # a draft got its name, or a segment went, since it was listed
                if tries == 1:
                    raise
                shutil.rmtree(self.path)
        self.broker.stop()
        self.broker = self._start()

    def stop(self) -> None:
        self.broker.stop()

    def settle_down(self) -> None:
        """Return when every partition of every topic has done what there is to do at this time."""
        settle(self.broker)

    def wait_for_snapshots(self) -> None:
        """Return when no snapshot is being written."""
        runtime = self.broker.runtime(TOPIC)

        for partition in runtime.partitions:
            runtime.look(partition.number, partition.maintenance.wait_written).result(
                PATIENCE_SECONDS
            )

    def advance(self, ms: int) -> None:
        self.clock.advance(ms=ms)
        self.settle_down()

    def write(self, op: str, columns: dict[str, Any], **stream: Any) -> Reply:
        number = stream.pop("number", 1)
        topic = stream.pop("topic", TOPIC)
        sender = stream.pop("sender", NOBODY)
        future: Future[Reply] = Future()
        writer = self.broker.open_write(WriteStream(topic, op, **stream).check(), sender)
        batch = pa.record_batch(columns)
        writer.check_schema(batch.schema)
        writer.submit(number, batch, future.set_result)
        return future.result(PATIENCE_SECONDS)

    def send(
        self,
        payloads: list[bytes],
        dues_ms: list[int] | None = None,
        keys: list[str] | None = None,
        **stream: Any,
    ) -> Reply:
        columns: dict[str, Any] = {"payload": pa.array(payloads, pa.binary())}
        if dues_ms is not None:
            columns["due"] = pa.array(dues_ms, pa.int64())
        if keys is not None:
            columns["key"] = pa.array(keys, pa.utf8())
        return self.write("enqueue", columns, **stream)

    def move(self, ids: list[int], dues_ms: list[int]) -> Reply:
        return self.write("move", {"id": pa.array(ids), "due": pa.array(dues_ms)})

    def cancel(self, ids: list[int]) -> Reply:
        return self.write("cancel", {"id": pa.array(ids)})

    def consumer(self, **options: Any) -> RecordingConsumer:
        return RecordingConsumer(self, **options)

    def next_position(self) -> int:
        """Where partition 0 will write its next entry."""
        found = self.broker.runtime(TOPIC).look(0, lambda place: place.next_position())
        return int(found.result(PATIENCE_SECONDS))

    def state_hashes(self) -> list[str]:
        runtime = self.broker.runtime(TOPIC)
        return [
            runtime.look(number, lambda place: str(place.engine.state_hash())).result(
                PATIENCE_SECONDS
            )
            for number in range(len(runtime.partitions))
        ]
