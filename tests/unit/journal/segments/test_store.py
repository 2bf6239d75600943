"""Covers: the data directory: lock, documents, dropped topics.

Not covered: what every store does (testing/journal_conformance.py).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from dejaqueue.errors import InternalError, JournalDamaged, Locked, Unavailable
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.journal_conformance import make_ack


def test_a_directory_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    with pytest.raises(Locked, match=rf"in use by process {os.getpid()}$"):
        SegmentStore(tmp_path)
    store.close()
    SegmentStore(tmp_path).close()


def test_a_damaged_document_is_refused(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    store.store_document("keys", '{"topics": []}')
    path = tmp_path / "keys.json"
    content = path.read_text()
    for wrong in (content.replace("topics", "tropics"), "", "[]", "{}"):
        path.write_text(wrong)
        with pytest.raises(JournalDamaged, match=r"keys\.json, offset 0"):
            store.load_document("keys")
    store.close()


def test_what_a_crash_left_of_a_dropped_topic_goes_at_the_next_start(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    store.open("topic", 0).append([make_ack(1)], 0, 1)
    store.close()
    (tmp_path / "dropped").mkdir()
    (tmp_path / "topics" / "topic").rename(tmp_path / "dropped" / "0")
    store = SegmentStore(tmp_path)
    assert list((tmp_path / "dropped").iterdir()) == []
    assert store.open("topic", 0).tail == 0
    store.close()


def test_a_place_that_is_no_directory_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="cannot be used"):
        SegmentStore(tmp_path / "file")


def test_a_partition_takes_little_room_at_first(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    journal = store.open("topic", 0)
    journal.append([make_ack(1)], 0, 1)
    assert journal.byte_count() <= 1 << 20
    store.close()


def test_a_shard_whose_directory_is_gone_is_damaged_and_not_empty(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, shards=2)
    store.make("t", number=1)
    for number, rows in ((0, 1), (1, 0)):
        journal = store.open("t", number, only_made=True)
        if rows:
            journal.append([make_ack(rows)], 0, 1)
        journal.close()
    for _ in range(2):  # what the first look made again is not believed either
        for shard in range(2):
            shutil.rmtree(tmp_path / "shards" / f"{shard:04d}")
        with pytest.raises(JournalDamaged, match=r"shards/0001: is empty, though there were"):
            store.open("t", 0, only_made=True)
        store.open("t", 1, only_made=True).close()
    store.close()


def test_snapshots_that_are_gone_are_damage_and_no_new_beginning(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, shards=1, segment_bytes=1 << 12)
    store.make("t", number=1)
    journal, other = store.open("t", 0), store.open("t", 1)
    for one in (journal, other):
        one.adopt(iter(()))
    journal.append([make_ack(1), make_ack(2)], 0, 1)
    for position in (1, 2):
        journal.put_snapshot(position, "{}", [])
        journal.truncate(position)
    for _ in range(100):
        other.append([make_ack(100)], other.tail, 1)
        for position in (other.tail - 1, other.tail):
            other.put_snapshot(position, "{}", [])
            other.truncate(position)
    assert journal.is_asked, "it holds the log back"
    assert journal.holds_room
    journal.append([make_ack(3)], 2, 1)
    journal.put_snapshot(3, "{}", [])
    journal.truncate(3)
    assert journal.byte_count() < 300, "its older entries were to be given back"
    store.close()
    store = SegmentStore(tmp_path)
    assert store.open("t", 0).tail == 3
    store.close()
    shutil.rmtree(tmp_path / "topics" / "t" / "@1" / "00000")
    store = SegmentStore(tmp_path)
    with pytest.raises(JournalDamaged, match=r"t/@1/00000: entry 1 was given back"):
        store.open("t", 0, only_made=True)
    assert store.open("t", 1, only_made=True).tail == 100
    store.close()


def test_a_shard_of_which_a_note_was_lost_is_noted_again(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, shards=1)
    store.open("t", 0).append([make_ack(1)], 0, 1)
    note = tmp_path / "shards" / "0000.begun"
    store.close()
    note.unlink()
    store = SegmentStore(tmp_path)
    assert store.open("t", 0).tail == 1
    assert note.exists()
    store.close()


def test_a_directory_keeps_its_shards(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, shards=3)
    store.make("t", number=1)
    assert [store.shard_of("t", 1, number) for number in range(4)] == [0, 1, 2, 0]
    store.open("t", 0).append([make_ack(1)], 0, 1)
    store.close()
    store = SegmentStore(tmp_path, shards=5)
    assert store.shards == 3
    assert [store.shard_of("t", 0, number) for number in range(4)] == [0, 1, 2, 0]
    store.close()
    (tmp_path / "shards.json").unlink()
    with pytest.raises(JournalDamaged, match=r"shards\.json: is missing"):
        SegmentStore(tmp_path)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 16])
def test_topics_are_spread_over_shards__however_many_changes_come_between(stride: int) -> None:
    store = MemoryStore()
    found = [store.shard_of("t", 1 + stride * place, 0) for place in range(160)]
    assert all(4 <= found.count(shard) <= 20 for shard in range(store.shards))


def test_a_topic_has_the_number_that_it_was_given__or_one_that_no_other_had(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    store.make("t", number=7)
    for again in (7, 0):
        store.make("t", number=again)
        journal = store.open("t", 3)
        assert journal.number == 7 << 16 | 3
        journal.close()
    with pytest.raises(JournalDamaged, match=r"t/@7: is not topic number 8"):
        store.make("t", number=8)
    found = set()
    for _ in range(3):
        journal = store.open("u", 0)
        assert journal.append([make_ack(1)], 0, 1) == 1
        found.add(journal.number)
        journal.close()
        store.drop("u")
    assert len(found) == 3
    assert min(found) >> 16 > 1 << 40
    store.close()


def test_entries_of_a_dropped_topic_are_free(tmp_path: Path) -> None:
    for crash in (False, True):
        root = tmp_path / str(crash)
        store = SegmentStore(root, shards=1, segment_bytes=1 << 13)
        gone, kept = store.open("gone", 0), store.open("kept", 0)
        kept.adopt(iter(()))
        for _ in range(50):
            gone.append([make_ack(30)], gone.tail, 1)
            kept.append([make_ack(1)], kept.tail, 1)
        for position in (49, 50):
            kept.put_snapshot(position, "{}", [])
            kept.truncate(position)
        before = len(kept.log.listed.segments)
        gone.close()
        if crash:
            kept.close()
            (root / "dropped").mkdir()
            (root / "topics" / "gone").rename(root / "dropped" / "1")
            store.close()
            store = SegmentStore(root)
            kept = store.open("kept", 0)
            kept.adopt(iter(()))
        else:
            store.drop("gone")
        assert before > 2
        assert len(kept.log.listed.segments) == 1
        store.close()


def test_what_another_version_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t" / "00000").mkdir(parents=True)
    with pytest.raises(JournalDamaged, match="another version"):
        SegmentStore(tmp_path)


def test_the_broker_s_own_journal_has_a_log_for_itself(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, shards=1)
    own, other = store.open("=own", 0), store.open("t", 0)
    for _ in range(3):
        own.append([make_ack(1)], own.tail, 1)
        other.append([make_ack(1)], other.tail, 1)
    own.put_snapshot(2, "{}", [])
    with pytest.raises(InternalError, match="is not dropped"):
        store.drop("=own")
    store.close()
    shutil.rmtree(tmp_path / "shards" / "0000")
    store = SegmentStore(tmp_path)
    assert store.open("=own", 0).tail == 3
    with pytest.raises(JournalDamaged, match=r"shards/0000: is empty"):
        store.open("t", 0)
    store.close()
    shutil.rmtree(tmp_path / "topics" / "=own" / "log")
    (tmp_path / "shards" / "0000.begun").unlink()
    store = SegmentStore(tmp_path)
    with pytest.raises(JournalDamaged, match=r"=own/log: is empty"):
        store.open("=own", 0)
    assert store.open("t", 0).tail == 0
    store.close()


def test_an_earlier_version_s_catalogue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topics" / "=catalogue" / "00000").mkdir(parents=True)
    with pytest.raises(JournalDamaged, match=r"=catalogue/00000: is of another version"):
        SegmentStore(tmp_path)


def test_a_partition_was_used_if_its_log_or_a_snapshot_has_something(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, shards=2, segment_bytes=1 << 12)
    assert not store.was_used("t", 0)
    store.make("t", number=2)
    assert [store.was_used("t", number) for number in range(4)] == [False] * 4
    first, other = store.open("t", 0), store.open("t", 1)
    assert [store.was_used("t", number) for number in range(4)] == [True, True, False, False]
    for one in (first, other):
        one.append([make_ack(1)] * 2, 0, 1)
        one.close()
    assert [store.was_used("t", number) for number in range(4)] == [True, True, False, False]
    store.close()
    store = SegmentStore(tmp_path)
    store.open("t", 2).close()  # the log of shard 0 was read; that of the other one was not
    used = [store.was_used("t", number) for number in range(6)]
    assert used == [True, True, False, True, False, True]
    store.open("t", 0).put_snapshot(2, "{}", [])
    store.close()
    # Of what is lost a snapshot tells, or the note that there was one: so it is looked at, and
    # found damaged.
    shutil.rmtree(tmp_path / "shards" / "0000")
    (tmp_path / "shards" / "0000.begun").unlink()
    for _ in range(2):
        store = SegmentStore(tmp_path)
        assert store.was_used("t", 0)
        with pytest.raises(JournalDamaged, match="snapshot"):
            store.open("t", 0)
        store.close()
        shutil.rmtree(tmp_path / "topics" / "t" / "@2" / "00000", ignore_errors=True)


class _BrokenDisk(FileSystem):
    """Files of which no directory is made or renamed as long as it is broken."""

    is_broken = False

    def make_directories(self, paths: Iterable[Path]) -> None:
        """Make none."""
        found = list(paths)
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(found[0]))
        super().make_directories(found)

    def rename(self, old: Path, new: Path) -> None:
        """Rename nothing."""
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(old), None, str(new))
        super().rename(old, new)


def test_who_makes_or_drops_a_topic_is_told_no_file__and_may_try_again(tmp_path: Path) -> None:
    disk = _BrokenDisk()
    store = SegmentStore(tmp_path, file_system=disk)
    store.make("made")
    disk.is_broken = True
    for call, topic in ((store.make, "new"), (store.drop, "made")):
        with pytest.raises(Unavailable) as caught:
            call(topic)
        assert str(tmp_path) in str(caught.value)  # for the log
        told = caught.value.told()
        assert str(tmp_path) not in told
        assert topic in told
        assert os.strerror(errno.EIO) in told
    disk.is_broken = False
    store.make("new")
    store.drop("made")
    assert store.made() == ["new"]
    store.close()
