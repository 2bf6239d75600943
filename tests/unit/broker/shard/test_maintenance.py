"""Snapshots and compaction while a partition is in use. Full disks are in tests/crash."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue.broker.shard import maintenance, unread_entries
from dejaqueue.broker.shard.archive_floor import KEEP_MS, ArchiveFloor
from dejaqueue.broker.shard.core import PartitionCore
from tests.patience import until
from tests.rules.broker_fixture import TOPIC, BrokerFixture

PAYLOADS = [b"x" * 5_000] * 40


def snapshots_of(broker: BrokerFixture) -> int:
    return int(broker.broker.call("stats", {"topic": TOPIC})["snapshots"])


def test_a_snapshot_is_taken_by_count__under_a_load_that_never_pauses(tmp_path: Path) -> None:
    broker = BrokerFixture(tmp_path / "journal", snapshot_entries=20)
    stopping = False
    snapshots_under_load = 0
    try:

        def look_again(_core: PartitionCore) -> None:
            """One more request waits at the end of every step."""
            nonlocal snapshots_under_load
            snapshots_under_load = runtime.partitions[0].maintenance.snapshot_count
            if not stopping:
                runtime.look(0, look_again)

        runtime = broker.broker.runtime(TOPIC)
        runtime.look(0, look_again)
        for turn in range(200):
            assert broker.send([b"a"], number=turn).error is None
        assert snapshots_under_load >= 1
    finally:
        stopping = True
        broker.stop()


def test_a_quiet_partition_takes_one_by_time(tmp_path: Path) -> None:
    broker = BrokerFixture(tmp_path / "journal", snapshot_interval_ms=1_000)
    try:
        broker.send([b"a"])
        broker.advance(999)
        broker.wait_for_snapshots()
        assert snapshots_of(broker) == 0
        broker.advance(1)
        broker.wait_for_snapshots()
        assert snapshots_of(broker) == 1
        broker.advance(10_000)  # nothing happened since
        broker.wait_for_snapshots()
        assert snapshots_of(broker) == 1
    finally:
        broker.stop()


def test_live_rows_of_mostly_dead_segments_are_copied__and_come_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMPACT_ENTRIES", 10)
    broker = BrokerFixture(tmp_path / "journal", snapshot_entries=10)
    try:
        kept = []
        for turn in range(60):
            payloads = [b"%d-%d" % (turn, row) + b"." * 5_000 for row in range(40)]
            ids = broker.send(payloads, [broker.now_ms + 60_000] * 40).all_ids().tolist()
            kept.append(payloads[7])
            broker.cancel(ids[:7] + ids[8:])
            broker.wait_for_snapshots()
        broker.settle_down()
        stats = broker.broker.call("stats", {"topic": TOPIC})
        assert stats["copied_rows"] > 0
        assert stats["journal_bytes"] < 60 * 40 * 5_000 / 2
        broker.restart()
        consumer = broker.consumer(credit=100_000)
        broker.advance(60_000)
        assert sorted(consumer.payloads()) == sorted(kept)
    finally:
        broker.stop()


def test_what_a_start_has_to_read_is_bounded_for_all_partitions_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_entries, "ENTRIES_MIN", 20)
    monkeypatch.setattr(unread_entries, "NOTED_ENTRIES", 1)
    broker = BrokerFixture(tmp_path / "journal", snapshot_entries=100, partitions=4)
    try:
        for _ in range(60):
            for number in range(3):
                columns = {"payload": pa.array([b"x"]), "partition": pa.array([number])}
                broker.write("enqueue", columns)
            broker.wait_for_snapshots()
            partitions = broker.broker._topics[TOPIC].partitions
            unread = [one.maintenance.entry_count(one.core) for one in partitions if one.was_read]
            assert sum(unread) <= 100 + 4
        assert sum(one.maintenance.snapshot_count for one in partitions) >= 3
    finally:
        broker.stop()


def test_what_is_retained_is_copied__though_nobody_has_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMPACT_ENTRIES", 10)
    broker = BrokerFixture(tmp_path / "journal", snapshot_entries=10, retention_ms=3_600_000)
    try:
        kept, consumer = [], broker.consumer(credit=100_000)
        for turn in range(40):
            payloads = [b"%d-%d" % (turn, row) + b"." * 5_000 for row in range(40)]
            dues_ms = [broker.now_ms + 60_000 * (row > 0) for row in range(40)]
            ids = broker.send(payloads, dues_ms).all_ids().tolist()
            kept.append(payloads[0])
            broker.cancel(ids[1:])
            for got in consumer.take_all():
                consumer.ack(got)
            broker.wait_for_snapshots()
        broker.settle_down()
        assert broker.broker.call("stats", {"topic": TOPIC})["copied_rows"] > 0
        broker.restart()
        sought = broker.broker.call("seek", {"topic": TOPIC, "to": "beginning"})
        assert sought == {"replayed": 40, "passed": 0, "next": None}
        assert broker.consumer(credit=100_000).payloads() == kept
    finally:
        broker.stop()


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_delivery_is_read_whole_though_its_rows_were_copied_since_it_was_leased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_disk: bool
) -> None:
    """A sending thread that was late found the old rows gone: nobody got the message, and nobody
    else before its lease ended."""
    monkeypatch.setattr(maintenance, "COMPACT_ENTRIES", 10)
    path = tmp_path / "journal" if on_disk else None
    broker = BrokerFixture(path, snapshot_entries=10)
    try:
        consumer = broker.consumer(credit=1)
        broker.send([b"on its way"])
        broker.settle_down()
        for _ in range(30):
            dues_ms = [broker.now_ms + 60_000] * 40
            broker.cancel(broker.send(PAYLOADS, dues_ms).all_ids().tolist())
            broker.wait_for_snapshots()
        broker.settle_down()
        assert broker.broker.call("stats", {"topic": TOPIC})["copied_rows"] > 0
        assert consumer.payloads() == [b"on its way"]
    finally:
        broker.stop()


DEAD = b"what is done, and is to be gone"


def files_with(content: bytes, folder: Path) -> list[Path]:
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            if content in path.read_bytes():
                found.append(path)
    return found


@pytest.mark.parametrize("ends", ["a backup", "too late a backup"])
def test_what_is_to_be_gone_waits_for_a_backup_without_snapshot_after_snapshot(
    tmp_path: Path, ends: str
) -> None:
    """Each second one was written, and an entry for it, and none of them changed anything."""
    broker = BrokerFixture(tmp_path / "journal")
    core = broker.broker.runtime(TOPIC).partitions[0].core

    def passed_on(seconds: int) -> None:
        for _ in range(seconds):
            broker.broker.store.press_dead(broker.now_ms, 0)
            broker.advance(1_000)
            broker.wait_for_snapshots()

    try:
        core.floor = ArchiveFloor(lambda: True, broker.clock.now_ms)
        sent = [broker.send([one], [broker.now_ms + KEEP_MS * 4]) for one in (DEAD, b"kept")]
        broker.cancel(sent[0].all_ids().tolist())
        passed_on(10)
        position = core.position
        assert snapshots_of(broker) <= maintenance.ROOM_SNAPSHOTS
        assert files_with(DEAD, tmp_path), "no backup has it"
        passed_on(20)
        assert snapshots_of(broker) <= maintenance.ROOM_SNAPSHOTS
        assert core.position == position
        if ends == "a backup":
            core.floor.reach(core.position)
            core.ring()
        else:
            broker.advance(KEEP_MS)
        passed_on(5)
        # A thread of the journal's own deletes the file.
        until(lambda: not files_with(DEAD, tmp_path), "it is gone")
        assert snapshots_of(broker) <= 2 * maintenance.ROOM_SNAPSHOTS
        assert [row["payload"] for row in broker.peek()] == [b"kept"]
    finally:
        broker.stop()


def test_a_full_disk_has_no_snapshots_taken_that_free_nothing__before_a_backup(
    tmp_path: Path,
) -> None:
    """A producer of another partition is refused, again and again."""
    broker = BrokerFixture(tmp_path / "journal")
    core = broker.broker.runtime(TOPIC).partitions[0].core

    def refused(seconds: int) -> None:
        for _ in range(seconds):
            broker.broker._room.want()
            broker.advance(1_000)
            broker.wait_for_snapshots()

    try:
        core.floor = ArchiveFloor(lambda: True, broker.clock.now_ms)
        for _ in range(40):
            sent = broker.send(PAYLOADS, [broker.now_ms + KEEP_MS * 4] * len(PAYLOADS))
            broker.cancel(sent.all_ids().tolist())
        assert core.journal.holds_room
        position, taken_bytes = core.position, broker.broker.store.taken_bytes(TOPIC, 0)
        refused(10)
        assert (snapshots_of(broker), core.position) == (0, position)
        for _ in range(5):
            core.floor.reach(core.position)
            refused(1)
        until(lambda: broker.broker.store.taken_bytes(TOPIC, 0) < taken_bytes / 4, "it is gone")
        assert 0 < snapshots_of(broker) <= 2 * maintenance.ROOM_SNAPSHOTS
    finally:
        broker.stop()
