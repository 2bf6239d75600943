"""Rule 13: the journal replayed, from any snapshot or from its first entry, is the live state."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue.broker.shard import entries
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.snapshot import restore
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.wire.frames import SettleOp
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture


def work(broker: BrokerFixture, seed: int) -> None:
    """A bit of everything."""
    dice = random.Random(seed)
    consumer = broker.consumer(credit=10_000)
    for turn in range(60):
        rows = dice.randint(1, 20)
        dues = [broker.now_ms + dice.randint(-5, 500) for _ in range(rows)]
        keys = [f"{turn}-{row}" if dice.random() < 0.5 else "" for row in range(rows)]
        reply = broker.send([b"x" * row for row in range(rows)], dues, keys, producer="p",
                            number=seed * 1_000 + turn + 1)  # fmt: skip
        ids = reply.all_ids().tolist()
        broker.move(ids[:2], [broker.now_ms + dice.randint(0, 900)] * len(ids[:2]))
        if rows > 3:
            by_ms = dice.randint(-90, 90)
            shifts = {"id": pa.array(ids[2:4]), "by_ms": pa.array([by_ms, by_ms])}
            conditions = [dice.choice([None, due]) for due in dues[2:4]]
            broker.write("move", shifts)
            broker.write("move", shifts | {"if_due": pa.array(conditions, pa.int64())})
        broker.cancel(ids[-1:])
        for got in consumer.take_all():
            op = dice.choice(list(SettleOp))
            if dice.random() < 0.5:
                consumer.settle(op, partition=0, lease_id=got.lease_id, argument_ms=50)
            elif dice.random() < 0.7:
                consumer.ack_rows(got.ids[:3], got.attempts[:3])
        broker.advance(dice.randint(0, 60))


@pytest.mark.parametrize("seed", range(5))
def test_replay_gives_the_live_state__from_the_start_and_from_a_snapshot(
    tmp_path: Path, seed: int
) -> None:
    broker = BrokerFixture(tmp_path / "journal", lease_ms=200)
    work(broker, seed)
    runtime = broker.broker.runtime(TOPIC)
    if seed % 2:  # one snapshot only: the journal lets nothing go before there are two
        runtime.look(0, runtime.partitions[0].maintenance.begin_snapshot).result(PATIENCE_SECONDS)
        broker.wait_for_snapshots()
        work(broker, seed + 100)
    [live] = broker.state_hashes()
    position = runtime.look(0, lambda place: place.position).result(PATIENCE_SECONDS)
    broker.stop()

    store = SegmentStore(tmp_path / "journal")
    journal = store.open(TOPIC, 0)
    replayed = Engine(0)
    for place, _epoch, entry in journal.scan(0):
        if place <= position:
            replayed.apply(entries.to_command(entry, place))
    assert str(replayed.state_hash()) == live

    snapshot = journal.latest_snapshot()
    assert snapshot is not None
    restored = restore(snapshot.meta, journal.read_snapshot_file)
    for place, _epoch, entry in journal.scan(snapshot.position):
        if place <= position:
            restored.apply(entries.to_command(entry, place))
    assert str(restored.state_hash()) == live
    store.close()
