"""Covers: the data directory: lock, documents, dropped topics.

Not covered: what every store does (testing/journal_conformance.py).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dejaqueue.errors import JournalDamaged, Locked, Unavailable
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
        with pytest.raises(JournalDamaged, match=r"cluster\.json, offset 0"):
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


def test_a_journal_whose_directory_is_gone_is_damaged_and_not_empty(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    store.make("t")
    for number, rows in ((0, 1), (1, 0)):
        journal = store.open("t", number, only_made=True)
        if rows:
            journal.append([make_ack(rows)], 0, 1)
        journal.close()
    for _ in range(2):  # what the first look made again is not believed either
        for number in range(2):
            shutil.rmtree(tmp_path / "topics" / "t" / f"{number:05d}")
        with pytest.raises(JournalDamaged, match=r"t/00000: is empty, though there were entries"):
            store.open("t", 0, only_made=True)
        store.open("t", 1, only_made=True).close()
    store.drop("t")
    store.make("t")
    assert store.open("t", 0, only_made=True).append([make_ack(1)], 0, 1) == 1
    store.close()


def test_a_journal_of_an_earlier_version_is_noted_when_it_is_opened(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    store.open("t", 0).append([make_ack(1)], 0, 1)
    note = tmp_path / "topics" / "t" / "00000.begun"
    store.close()
    note.unlink()
    store = SegmentStore(tmp_path)
    assert store.open("t", 0).tail == 1
    assert note.exists()
    store.close()


def test_partitions_that_were_opened_are_used__also_where_only_the_note_is_left(
    tmp_path: Path,
) -> None:
    store = SegmentStore(tmp_path)
    store.make("t")
    assert store.used_partitions("t") == set()
    for number in (0, 3):
        journal = store.open("t", number, only_made=True)
        journal.append([make_ack(1)], 0, 1)
        journal.close()
    shutil.rmtree(tmp_path / "topics" / "t" / "00003")
    assert store.used_partitions("t") == {0, 3}
    assert store.used_partitions("other") == set()
    store.close()
