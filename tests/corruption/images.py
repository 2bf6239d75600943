"""Disks worth spoiling: journals with everything in them, made by a real broker in one thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.errors import DejaQError
from dejaqueue.journal.encryption.master_keys import LocalMasterKey
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.model import Topic, TopicKind
from dejaqueue.schema.messages import PEEK
from dejaqueue.settings import BrokerSettings, DispatchSettings, JournalSettings
from dejaqueue.testing.simulation.threads import SimulatedThreads
from dejaqueue.testing.simulation.world import Life, SimulatedClock, World
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Reply, Settle, SettleOp
from tests.crash.disk_copies import copied

SEGMENT_BYTES = 32 << 10
KINDS = (TopicKind.TIMELINE, TopicKind.FAIR, TopicKind.CRON)


class Store(SegmentStore):
    """Segments on a disk in memory, of which nobody else knows."""

    def __init__(self, files: MemoryFileSystem, segment_bytes: int = SEGMENT_BYTES) -> None:
        super().__init__(
            Path("disk:"), segment_bytes=segment_bytes, reserve_bytes=0, file_system=files
        )

    def _take_lock(self) -> None:
        return None


@dataclass
class Started:
    """A broker on a disk, in a world of its own.

    Attributes:
        replies: what came for each batch.
    """

    world: World
    broker: Broker

    def ask(self, topic: str, op: str, columns: dict[str, Any], **stream: Any) -> Reply:
        """Send a batch and wait for its answer."""
        replies: list[Reply] = []
        number = stream.pop("number", 1)
        writer = self.broker.open_write(WriteStream(topic, op, **stream).check())
        writer.submit(number, pa.record_batch(columns), replies.append)
        self.until(lambda: bool(replies))
        assert replies[0].error is None, replies[0].error
        return replies[0]

    def until(self, is_so: Callable[[], bool]) -> None:
        """Let things happen until it is so."""
        while not is_so():
            assert self.world.step(), "nothing happens any more"

    def settle_down(self) -> None:
        """Let things happen for two seconds."""
        self.world.run(self.world.now_us + 2_000_000)


def start(
    files: MemoryFileSystem, segment_bytes: int = SEGMENT_BYTES, *, is_encrypted: bool = False
) -> Started:
    """A broker on this disk. Raises DejaQError."""
    store = Store(files, segment_bytes)
    if is_encrypted:
        store.encrypt([LocalMasterKey(b"m" * 32)])
    return start_on(store, segment_bytes)


def start_on(store: JournalStore, segment_bytes: int = SEGMENT_BYTES) -> Started:
    """A broker on these journals. Raises DejaQError."""
    world = World(1)
    life = Life()
    settings = BrokerSettings(
        journal=JournalSettings(
            url="memory:", segment_bytes=segment_bytes, snapshot_entries=0, snapshot_interval_ms=0
        ),
        dispatch=DispatchSettings(workers=1),
    )
    broker = Broker(settings, SimulatedClock(world), store, SimulatedThreads(world, life))
    broker.start()
    return Started(world, broker)


class Taker:
    """A consumer that takes some messages and acks some of them."""

    def __init__(self, started: Started, topic: str) -> None:
        self.pushes: list[Push] = []
        self._session = started.broker.open_consume(
            ConsumeStream(topic, "taker", 600_000).check(), self
        )

    def push(self, push: Push) -> None:
        """Keep it."""
        self.pushes.append(push)

    def end(self, error: DejaQError) -> None:
        """Nothing to do."""

    def take(self, started: Started, count: int) -> None:
        """Take so many, and ack every other one."""
        self._session.credit(count)
        started.settle_down()
        for push in self.pushes:
            leased = push.leased
            ids = leased.sequences[::2] | (push.partition << 47)
            settle = Settle(SettleOp.ACK, number=1, ids=ids, attempts=leased.attempts[::2])
            self._session.settle(settle, lambda reply: None)
        started.settle_down()


def rich_image(*, is_encrypted: bool = False) -> MemoryFileSystem:
    """A small disk with everything in it."""
    files = MemoryFileSystem()
    started = start(files, is_encrypted=is_encrypted)
    fill(started)
    left = copied(files)
    started.broker.stop()
    return left


def fill(started: Started) -> None:
    """Have a broker keep everything: three kinds, groups, keys, tags, headers, lives, leases,
    letters, transactions, snapshots, entries behind them, API keys."""
    broker = started.broker
    for kind in KINDS:
        broker.create_topic(Topic(str(kind), kind=kind, partitions=2, max_attempts=3))
    broker.keys.create("somebody", ["admin:*"])
    broker.call("cron_put", {"topic": "cron", "entries": [
        {"name": f"e{n}", "every_ms": 1_000, "payload": ""} for n in range(5)
    ]})  # fmt: skip
    for turn in range(14):
        for topic in ("timeline", "fair"):
            _send(started, topic, turn)
        if turn in (4, 9):
            for topic in ("timeline", "fair"):
                Taker(started, topic).take(started, 40)
            _snapshots(started)
    name = broker.transactions.begin("timeline", 600_000)["transaction"]
    columns = {"payload": pa.array([b"staged"] * 3, pa.binary())}
    started.ask("timeline", "enqueue", columns, transaction=name)
    started.settle_down()


def _send(started: Started, topic: str, turn: int) -> None:
    random = np.random.default_rng(turn)
    rows = 30
    now_ms = started.broker.clock.now_ms()
    numbers = [f"{topic}-{turn}-{row}" for row in range(rows)]
    columns = {
        "payload": pa.array(
            [n.encode() * int(random.integers(1, 12)) for n in numbers], pa.binary()
        ),
        "due": pa.array(now_ms + random.integers(-1_000, 900_000, rows)),
        "key": pa.array([n if place % 3 else None for place, n in enumerate(numbers)], pa.utf8()),
        "group": pa.array(random.choice(["", "a", "b", "c.d"], rows).tolist(), pa.utf8()),
        "priority": pa.array(random.integers(0, 9, rows).astype(np.uint16)),
        "expires": pa.array(np.where(random.random(rows) < 0.2, now_ms + 950_000, 0)),
        "tags": pa.array([["red"] if place % 4 else [] for place in range(rows)]),
        "headers": pa.array([[("h", n)] for n in numbers], pa.map_(pa.utf8(), pa.utf8())),
        "partition": pa.array(random.integers(0, 2, rows).astype(np.int32)),
    }
    del columns["partition" if turn % 2 else "key"]
    started.ask(topic, "enqueue", columns, producer=f"p{turn % 3}", number=turn)


def _snapshots(started: Started) -> None:
    """A snapshot of every partition, now."""
    for runtime in map(started.broker.runtime, started.broker.serving()):
        for partition in runtime.partitions:
            take = partition.maintenance.snapshot_and_wait
            runtime.look(partition.number, take).result(10)


def sealed_image() -> MemoryFileSystem:
    """A disk with a snapshot whose order index has sealed runs."""
    files = MemoryFileSystem()
    started = start(files, 16 << 20)
    started.broker.create_topic(Topic("far"))
    random = np.random.default_rng(3)
    now_ms = started.broker.clock.now_ms()
    for _ in range(6):
        rows = 50_000
        dues = now_ms + 3_600_000 + random.integers(0, 900_000_000, rows)
        columns = {"payload": pa.array([b"p"] * rows, pa.binary()), "due": pa.array(dues)}
        started.ask("far", "enqueue", columns)
    _snapshots(started)
    columns = {"payload": pa.array([b"q"] * 100, pa.binary())}
    started.ask("far", "enqueue", columns)
    left = copied(files)
    started.broker.stop()
    return left


@dataclass(frozen=True)
class Seen:
    """What a disk holds, as clients and replays see it.

    Attributes:
        hashes: of the state of each partition.
        rows: every live message with all its columns, by partition.
        keys: ids of the API keys.
        tails: of each partition's journal.
    """

    hashes: tuple[int, ...]
    rows: tuple[pa.Table, ...]
    keys: tuple[str, ...]
    tails: tuple[int, ...]


def look(started: Started) -> Seen:
    """Everything that may be delivered, read as deliveries are. Raises DejaQError."""
    hashes, rows, tails = [], [], []
    for runtime in map(started.broker.runtime, started.broker.serving()):
        for number in range(len(runtime.partitions)):
            state_hash, table, tail = runtime.look(number, _look_at).result(10)
            tails.append(tail)
            hashes.append(state_hash)
            rows.append(table)
    keys = tuple(key.id for key in started.broker.keys.all())
    return Seen(tuple(hashes), tuple(rows), keys, tuple(tails))


def _look_at(place: Any) -> tuple[int, pa.Table, int]:
    from dejaqueue.broker.consumers.gathering import message_columns

    engine = place.engine
    table = engine.state.table
    found = list(table.live_places())
    places = np.concatenate(found) if found else np.zeros(0, np.int64)
    sequences = places + table.base
    columns = message_columns(
        place.journal,
        sequences | (place.number << 47),
        engine.dues(sequences),
        engine.attempts(sequences),
        engine.locators(sequences),
        engine.priorities(sequences),
    )
    names = PEEK.names[: len(columns)]
    rows = pa.table(dict(zip(names, columns, strict=True)))
    return engine.state_hash(), rows, place.journal.tail
