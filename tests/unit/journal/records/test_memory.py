"""Records in memory, as tests use them. The contract itself: tests/conformance."""

from __future__ import annotations

import pytest

from dejaqueue.errors import Fenced
from dejaqueue.journal.records.memory import MemoryRecordStore


def test_everybody_who_opens_a_log_sees_the_same_records() -> None:
    store = MemoryRecordStore()
    store.open("t", 0).append(0, [[b"a", b"b"], [b"c"]])
    assert list(store.open("t", 0).read(1, 9)) == [(1, b"ab"), (2, b"c")]
    assert store.open("t", 1).last() == 0


def test_an_append_behind_another_record_than_the_last_is_fenced() -> None:
    log = MemoryRecordStore().open("t", 0)
    log.append(0, [[b"a"]])
    for after in (0, 2):
        with pytest.raises(Fenced, match=f"ends at record 1, not {after}"):
            log.append(after, [[b"b"]])
    assert log.last() == 1


def test_the_last_number_stays_when_all_records_are_dropped() -> None:
    log = MemoryRecordStore().open("t", 0)
    log.append(0, [[b"abc"], [b"d"]])
    log.drop_before(2)
    assert (list(log.read(0, 9)), log.byte_count()) == ([(2, b"d")], 1)
    log.drop_before(3)
    assert (log.last(), log.byte_count()) == (2, 0)
    log.append(2, [[b"e"]])
    assert list(log.read(0, 9)) == [(3, b"e")]


def test_who_has_a_dropped_log_open_appends_nothing__the_next_begins_anew() -> None:
    store = MemoryRecordStore()
    former, other = store.open("t", 0), store.open("other", 0)
    store.drop("t")
    with pytest.raises(Fenced, match="t/0 was dropped"):
        former.append(0, [[b"a"]])
    other.append(0, [[b"a"]])
    store.open("t", 0).append(0, [[b"b"]])
    assert former.last() == 0


def test_objects_are_listed_by_how_their_names_begin() -> None:
    store = MemoryRecordStore()
    for name in ("b/2", "a/1", "b/1"):
        store.put_object(name, name.encode())
    assert store.object_names("b/") == ["b/1", "b/2"]
    store.drop_objects(["b/1", "never there"])
    assert (store.get_object("b/1"), store.get_object("b/2")) == (None, b"b/2")
