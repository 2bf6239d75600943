"""Covers: a directory that several stores have open: who has a log, which topics there are.

Not covered: what every store does (tests/conformance/test_segments.py), the catalogue beside it
(tests/unit/journal/test_processes.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dejaqueue.errors import JournalDamaged, Locked, Refused, Unavailable
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.shared_store import SharedStore, TopicSlots
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.journal_conformance import make_ack

BYTES = 1 << 13


def store_at(root: Path, first: int = 0, spread: int = 1) -> SharedStore:
    store = SharedStore(root, segment_bytes=BYTES, shards=4)
    store.slots_of = lambda topic: TopicSlots(first, spread)
    return store


def test_a_log_is_open_in_one_store_at_a_time(tmp_path: Path) -> None:
    one, other = store_at(tmp_path), store_at(tmp_path)
    one.make("t.7", 7)
    mine = one.open("t.7", 0, only_made=True)
    mine.append([make_ack(1)], 0, 1)
    with pytest.raises(
        Unavailable, match=rf"locks/0000 is in use by process {os.getpid()}"
    ) as away:
        other.open("t.7", 1, only_made=True)
    assert away.value.told() == f"shard 0000 is in use by process {os.getpid()}"
    mine.close()
    theirs = other.open("t.7", 0, only_made=True)
    assert theirs.append([make_ack(1)], 1, 2) == 2
    with pytest.raises(Unavailable, match="in use"):
        one.open("t.7", 0, only_made=True)
    other.close()
    assert one.open("t.7", 0, only_made=True).tail == 2
    one.close()


def test_a_topic_stays_where_it_was_made__in_as_many_logs_as_it_is_spread(tmp_path: Path) -> None:
    store = store_at(tmp_path, first=3, spread=2)
    store.make("t.7", 7)
    for partition in range(4):
        journal = store.open("t.7", partition, only_made=True)
        assert journal.log.directory.name == ("0003", "0000")[partition % 2]
    store.close()
    again = store_at(tmp_path, first=1)
    assert again.shard_of("t", 7, 0) == 1
    assert again.open("t.7", 1, only_made=True).log.directory.name == "0000"
    again.close()


def test_what_others_made_and_stored_is_there__also_if_they_were_heard_of_late(
    tmp_path: Path,
) -> None:
    early, late = store_at(tmp_path), store_at(tmp_path)
    early.make("mine.5", 5)
    first = early.open("mine.5", 0, only_made=True)
    first.append([make_ack(1)], 0, 1)
    early.make("new.6", 6)
    second = early.open("new.6", 0, only_made=True)
    second.append([make_ack(1)], 0, 1)
    early.close()
    # It knows neither topic when it opens the log for one: entries of the other are not free.
    found = late.open("mine.5", 0, only_made=True)
    found.adopt(iter(()))
    assert late.open("new.6", 0, only_made=True).tail == 1
    assert late.made() == ["mine.5", "new.6"]
    late.close()


def test_what_another_drops_is_free_here(tmp_path: Path) -> None:
    one, other = store_at(tmp_path), store_at(tmp_path)
    for topic, number in (("gone.5", 5), ("kept.6", 6)):
        one.make(topic, number)
    gone, kept = (one.open(topic, 0, only_made=True) for topic in ("gone.5", "kept.6"))
    kept.adopt(iter(()))
    for _ in range(50):
        gone.append([make_ack(30)], gone.tail, 1)
        kept.append([make_ack(1)], kept.tail, 1)
    for position in (49, 50):
        kept.put_snapshot(position, "{}", [])
        kept.truncate(position)
    gone.close()
    assert len(kept.log.listed.segments) > 2
    other.drop("gone.5")
    other.drop("gone.5")
    one.tidy({"kept.6"})
    assert len(kept.log.listed.segments) == 1
    assert one.made() == ["kept.6"]
    one.close()
    other.close()


def test_one_topic_more_is_looked_for_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each first use, and each drop, of a topic had listed the directories of all others."""
    one, other = store_at(tmp_path), store_at(tmp_path)
    for number in range(1, 40):
        one.make(f"t{number}.{number}", number)
    other.open("t1.1", 0, only_made=True)  # what can be in its log was looked for
    asked: list[Path] = []
    listed = FileSystem.names

    def names(files: FileSystem, directory: Path) -> list[str]:
        asked.append(directory)
        return listed(files, directory)

    one.make("new.40", 40)
    monkeypatch.setattr(FileSystem, "names", names)
    other.make("new.40", 40)
    other.open("new.40", 0, only_made=True)
    one.drop("t9.9")
    other.drop("t9.9")
    assert [path for path in asked if path == tmp_path / "topics"] == []
    assert {path.name for path in asked if path.parent.name == "topics"} == {"new.40", "t9.9"}
    other.make("t9.50", 50)
    other.tidy({"new.40", "t9.50"})
    assert "t9.9" not in other.made()
    one.close()
    other.close()


def test_a_directory_stays_what_it_was_made_for(tmp_path: Path) -> None:
    store = store_at(tmp_path / "several")
    store.make("t.7", 7)
    store.close()
    with pytest.raises(Refused, match="was made for several processes"):
        SegmentStore(tmp_path / "several")
    SegmentStore(tmp_path / "one").close()
    for _ in range(2):  # the second is told the same: the first has let go of it
        with pytest.raises(Refused, match="was made for one process"):
            store_at(tmp_path / "one")
    SegmentStore(tmp_path / "one").close()


def test_who_starts_the_processes_has_the_directory__and_clears_up(tmp_path: Path) -> None:
    (tmp_path / "dropped" / "9").mkdir(parents=True)
    parent = SharedStore(tmp_path, segment_bytes=BYTES, is_alone=True)
    lock = parent.keep_lock()
    parent.close()
    assert not list((tmp_path / "dropped").iterdir())
    with pytest.raises(Locked):
        SharedStore(tmp_path, segment_bytes=BYTES, is_alone=True)
    store_at(tmp_path).close()
    lock.release()


def test_a_name_that_says_not_where_a_topic_lies_is_damage(tmp_path: Path) -> None:
    store_at(tmp_path).close()
    (tmp_path / "topics" / "t.7" / "@7").mkdir(parents=True)
    with pytest.raises(JournalDamaged, match="of another version"):
        store_at(tmp_path)
