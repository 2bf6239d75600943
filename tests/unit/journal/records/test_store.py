"""Covers: a store of journals on a server: which are made, open and dropped; texts; closing.

Not covered: a journal itself (test_journal.py), servers (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest, JournalDamaged, Locked, Unavailable
from dejaqueue.journal.interface import DOCUMENTS
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.journal_conformance import make_ack


@pytest.fixture
def records() -> MemoryRecordStore:
    return MemoryRecordStore()


MakeStore = Callable[..., RecordJournalStore]


@pytest.fixture
def make(records: MemoryRecordStore) -> Iterator[MakeStore]:
    made: list[RecordJournalStore] = []

    def store(mirror: Path | None = None) -> RecordJournalStore:
        made.append(RecordJournalStore(records, mirror=mirror))
        return made[-1]

    yield store
    for one in made:
        one.close()


def test_a_journal_is_open_once(make: MakeStore) -> None:
    """Two owners in one process would share the copy on the disk."""
    store = make()
    journal = store.open("t", 0)
    with pytest.raises(Unavailable, match=r"the journal of t/0 is open already"):
        store.open("t", 0)
    store.open("t", 1)
    journal.close()
    store.open("t", 0)


def test_a_journal_that_could_not_be_opened_can_be_opened_later(
    make: MakeStore, records: MemoryRecordStore
) -> None:
    store = make()
    opened = records.open

    def away(topic: str, partition: int) -> MemoryRecords:
        raise Unavailable("the server is away")

    records.open = away  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="away"):
        store.open("t", 0)
    records.open = opened  # type: ignore[method-assign]
    assert store.open("t", 0).tail == 0


def test_what_was_made_is_known(make: MakeStore) -> None:
    store = make()
    for topic in ("c", "a", "a.b"):
        store.make(topic)
    assert store.made() == ["a", "a.b", "c"]


def test_a_document_is_checked__and_there_is_none_at_first(
    make: MakeStore, records: MemoryRecordStore
) -> None:
    store = make()
    assert store.load_document("keys") is None
    store.store_document("keys", "the keys")
    assert store.load_document("keys") == "the keys"
    content = records.objects["documents/keys"]
    records.objects["documents/keys"] = content.replace(b"the", b"The")
    with pytest.raises(JournalDamaged):
        store.load_document("keys")


def test_only_documents_that_there_are_have_a_place(make: MakeStore) -> None:
    store = make()
    store.store_document(DOCUMENTS[0], "keys")
    assert store.load_document(DOCUMENTS[0]) == "keys"
    for call in (store.load_document, lambda name: store.store_document(name, "")):
        with pytest.raises(BadRequest, match=r"^document: "):
            call("../catalogue")


# --- dropping


def test_what_is_dropped_is_gone_with_all_that_was_beside_it(
    make: MakeStore, records: MemoryRecordStore, tmp_path: Path
) -> None:
    store = make(tmp_path)
    store.make("t")
    store.make("t2")
    for topic in ("t", "t2"):
        journal = store.open(topic, 0)
        journal.append([make_ack(1)], 0, 1)
        journal.put_snapshot(1, "{}", [])
        journal.close()
    store.drop("t")
    assert store.made() == ["t2"]
    assert set(records.logs) == {("t2", 0)}
    assert not [name for name in records.objects if "/t/" in name or name.endswith("/t")]
    assert [path.name for path in (tmp_path / "topics").iterdir()] == ["t2"]
    assert store.open("t", 0).tail == 0


def test_a_topic_with_an_open_journal_is_not_dropped(make: MakeStore) -> None:
    store = make()
    store.make("t")
    journal = store.open("t", 0)
    with pytest.raises(Unavailable, match="journals of t are open"):
        store.drop("t")
    journal.close()
    store.drop("t")
    assert store.made() == []


def test_half_a_drop_is_finished_by_who_opens_the_topic_next(
    make: MakeStore, records: MemoryRecordStore
) -> None:
    """The broker died between noting the drop and dropping; the topic is made again."""
    first = make()
    first.make("t")
    journal = first.open("t", 0)
    journal.append([make_ack(1)], 0, 1)
    journal.close()
    dropped = records.drop

    def dies(topic: str) -> None:
        raise Unavailable("the process died here")

    records.drop = dies  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        first.drop("t")
    records.drop = dropped  # type: ignore[method-assign]
    assert "dropped/t" in records.objects
    second = make()
    second.make("t")
    assert second.open("t", 0).tail == 0
    assert "dropped/t" not in records.objects


def test_a_journal_that_was_never_made_leaves_nothing__if_only_made_ones_are_wanted(
    make: MakeStore, records: MemoryRecordStore
) -> None:
    store = make()
    with pytest.raises(Unavailable, match="journals of t were dropped, or never made"):
        store.open("t", 0, only_made=True)
    assert records.logs == {}
    store.make("t")
    assert store.open("t", 0, only_made=True).tail == 0


def test_copies_of_topics_that_are_gone_are_tidied_away__but_not_open_ones(
    make: MakeStore, tmp_path: Path
) -> None:
    store = make(tmp_path)
    for topic in ("known", "gone", "open"):
        journal = store.open(topic, 0)
        journal.append([make_ack(1)], 0, 1)
        if topic != "open":
            journal.close()
    store.tidy(["known"])
    assert sorted(path.name for path in (tmp_path / "topics").iterdir()) == ["known", "open"]


# --- the directory, and the end


def test_a_directory_is_one_process_at_a_time(make: MakeStore, tmp_path: Path) -> None:
    store = make(tmp_path)
    with pytest.raises(Locked):
        make(tmp_path)
    store.close()
    make(tmp_path)


def test_a_closed_store_does_nothing_more__and_closing_twice_is_fine(make: MakeStore) -> None:
    store = make()
    journal = store.open("t", 0)
    store.close()
    store.close()
    with pytest.raises(Unavailable):
        journal.append([make_ack(1)], 0, 1)
    for call in (lambda: store.load_document("keys"), store.made, lambda: store.open("t", 1)):
        with pytest.raises(Unavailable, match="the store is closed"):
            call()


def test_a_copy_is_erased__but_not_of_a_journal_that_is_open(
    make: MakeStore, tmp_path: Path
) -> None:
    store = make(tmp_path)
    for partition in (0, 1):
        store.open("t", partition).append([make_ack(1)], 0, 1)
    directory = tmp_path / "topics" / "t"
    with pytest.raises(Unavailable, match="is open here"):
        store.erase_copy("t", 0)
    store.erase_copy("other", 0)
    store._open["t", 0].close()  # type: ignore[union-attr]
    assert list((directory / "00000").iterdir())
    store.erase_copy("t", 0)
    assert not (directory / "00000").exists()
    assert list((directory / "00001").iterdir())
    assert store.open("t", 0).tail == 1


def test_a_copy_that_nobody_uses_goes_when_it_is_old(make: MakeStore, tmp_path: Path) -> None:
    store = make(tmp_path)
    for partition in range(2):
        journal = store.open("t", partition)
        journal.append([make_ack(1)], 0, 1)
    journal.close()
    directories = tmp_path / "topics" / "t"

    def names() -> list[str]:
        return sorted(path.name for path in directories.iterdir())

    store.press_dead(1_000, 2_000)
    store.press_dead(2_000, 2_000)
    assert names() == ["00000", "00001"]
    store.press_dead(3_000, 2_000)
    assert names() == ["00000"]
    again = store.open("t", 1)
    assert again.tail == 1
    store.press_dead(9_000, 2_000)
    again.close()
    store.press_dead(10_000, 2_000)
    assert names() == ["00000", "00001"], "it was used until a moment ago"


# --- where topics lie


def heard(records: MemoryRecordStore) -> dict[str, tuple[int, ...]]:
    """What the server hears of where topics lie, the newest."""
    found: dict[str, tuple[int, ...]] = {}

    def lies(topic: str, slots: tuple[int, ...]) -> None:
        found[topic] = slots

    records.lies = lies  # type: ignore[method-assign]
    return found


def test_a_topic_lies_for_its_life_where_it_did_when_it_was_made(
    make: MakeStore, records: MemoryRecordStore
) -> None:
    """Whoever opens it later may know more of the cluster, or less."""
    found, first = heard(records), make()
    asked: list[str] = []

    def slots_of(topic: str) -> tuple[int, ...]:
        asked.append(topic)
        return (3, 0)

    first.slots_of = slots_of
    first.make("t.7", 7)
    assert asked == ["t"], "by the name that the catalogue has"
    second = make()
    second.slots_of = lambda topic: (1,)
    second.open("t.7", 1, only_made=True)
    assert found == {"t.7": (3, 0)}
    found.clear()
    second.copies("t.7", 2)
    assert found == {"t.7": (3, 0)}


def test_a_dropped_topic_is_dropped_where_it_lay__though_that_broke_off(
    make: MakeStore, records: MemoryRecordStore
) -> None:
    found, store = heard(records), make()
    store.slots_of = lambda topic: (5,)
    store.make("t")
    whole = records.drop_objects
    calls = iter([True, False])

    def broken(names: list[str]) -> None:
        if not next(calls):
            raise Unavailable("away")
        whole(names)

    records.drop_objects = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(Unavailable):
        store.drop("t")
    records.drop_objects = whole  # type: ignore[method-assign]
    found.clear()
    lay: list[tuple[int, ...]] = []
    drop = records.drop

    def noted(topic: str) -> None:
        lay.append(found[topic])
        drop(topic)

    records.drop = noted  # type: ignore[method-assign]
    make().open("t", 0)
    assert lay == [(5,)]


def test_a_topic_that_is_made_while_it_is_opened_is_opened_again(
    make: MakeStore, records: MemoryRecordStore
) -> None:
    """Its records would be looked for in another place."""
    found, store = heard(records), make()
    store.slots_of = lambda topic: (5,)
    opened = records.open

    def late(topic: str, partition: int) -> MemoryRecords:
        store.make("t")
        return opened(topic, partition)

    records.open = late  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="the journals of t were made just now"):
        store.open("t", 0, only_made=True)
    records.open = opened  # type: ignore[method-assign]
    assert found == {"t": ()}
    store.open("t", 0, only_made=True)
    assert found == {"t": (5,)}
