"""Snapshots as objects: what is kept, what damage does. Servers: tests/conformance."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from dejaqueue.errors import BadRequest, Fenced, JournalDamaged, Unavailable
from dejaqueue.journal.interface import SnapshotFile
from dejaqueue.journal.records import snapshot_objects
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.snapshot_objects import SnapshotObjects


@pytest.fixture
def store() -> MemoryRecordStore:
    return MemoryRecordStore()


def put(snapshots: SnapshotObjects, position: int, **files: bytes | None) -> None:
    parts = [SnapshotFile(name, content) for name, content in files.items()]
    snapshots.put(position, f"meta {position}", parts)


def parts(store: MemoryRecordStore) -> list[str]:
    return [name.removeprefix("p/parts/") for name in store.object_names("p/parts/")]


def test_a_snapshot_is_found_again_with_its_parts(store: MemoryRecordStore) -> None:
    put(SnapshotObjects(store, "p"), 5, a=b"one", b=b"")
    again = SnapshotObjects(store, "p")
    newest = again.newest()
    assert newest is not None
    assert (newest.position, newest.meta, again.damaged) == (5, "meta 5", [])
    assert [bytes(again.read("a")), bytes(again.read("b"))] == [b"one", b""]
    assert bytes(again.read("a")) == b"one"


def test_the_newest_two_are_kept__with_the_parts_they_name(store: MemoryRecordStore) -> None:
    snapshots = SnapshotObjects(store, "p")
    put(snapshots, 5, a=b"one", b=b"two")
    assert snapshots.kept_position == 0
    put(snapshots, 6, b=None, c=b"three")
    assert (snapshots.kept_position, parts(store)) == (5, ["a", "b", "c"])
    put(snapshots, 7, b=None)
    assert (snapshots.kept_position, parts(store)) == (6, ["b", "c"])
    assert len(store.object_names("p/snapshots/")) == 2
    assert bytes(snapshots.read("b")) == b"two"


def test_the_one_before_serves_where_the_newest_is_damaged(store: MemoryRecordStore) -> None:
    snapshots = SnapshotObjects(store, "p")
    put(snapshots, 5, a=b"one")
    put(snapshots, 6, b=b"two")
    store.objects["p/parts/b"] = b"twO"
    again = SnapshotObjects(store, "p")
    newest = again.newest()
    assert newest is not None
    assert newest.position == 5
    assert again.damaged == ["p/parts/b: is not what was written"]


def test_a_part_that_rots_after_the_opening_is_not_handed_out(store: MemoryRecordStore) -> None:
    snapshots = SnapshotObjects(store, "p")
    put(snapshots, 5, a=b"one")
    store.objects["p/parts/a"] = b"onE"
    with pytest.raises(JournalDamaged, match="p/parts/a: is not what was written"):
        snapshots.read("a")
    with pytest.raises(JournalDamaged, match="no part of the newest snapshot"):
        snapshots.read("other")


def test_an_owner_that_was_overtaken_deletes_nothing_of_the_next(store: MemoryRecordStore) -> None:
    former = SnapshotObjects(store, "p")
    put(former, 5, a=b"one")
    following = SnapshotObjects(store, "p")
    put(following, 8, b=b"two")
    assert (former.is_newest(), following.is_newest()) == (False, True)
    for position in (6, 7):
        put(former, position, **{f"old{position}": b"x"})
    assert bytes(SnapshotObjects(store, "p").read("b")) == b"two"


@pytest.mark.parametrize(("name", "content"), [("new", None), ("a/b", b"x"), ("", b"x")])
def test_a_part_without_content_or_name_is_refused(
    store: MemoryRecordStore, name: str, content: bytes | None
) -> None:
    snapshots = SnapshotObjects(store, "p")
    with pytest.raises(BadRequest, match="a stored name, or a new one with content"):
        snapshots.put(5, "", [SnapshotFile(name, content)])
    assert snapshots.newest() is None


def test_a_manifest_is_stored_after_its_parts() -> None:
    class Noting(MemoryRecordStore):
        def put_object(self, name: str, content: bytes | memoryview) -> None:
            names.append(name)
            super().put_object(name, content)

    names: list[str] = []
    put(SnapshotObjects(Noting(), "p"), 5, a=b"one", b=b"two")
    assert names == ["p/parts/a", "p/parts/b", "p/snapshots/00000000000000000005"]


def test_old_snapshots_that_cannot_be_deleted_stay(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(MemoryRecordStore):
        def drop_objects(self, names: Sequence[str]) -> None:
            if not is_there:
                raise Unavailable("away")
            super().drop_objects(names)

    is_there = False
    store = Stubborn()
    snapshots = SnapshotObjects(store, "p")
    with caplog.at_level(logging.WARNING):
        for position in (5, 6, 7):
            put(snapshots, position, **{f"n{position}": b"x"})
    assert "older snapshots below p/parts/ stay: away" in caplog.text
    assert parts(store) == ["n5", "n6", "n7"]
    is_there = True
    put(snapshots, 8, n8=b"x")
    assert parts(store) == ["n7", "n8"]


def test_what_an_owner_before_stored_late_is_erased__but_nothing_of_the_next_one(
    store: MemoryRecordStore,
) -> None:
    former = SnapshotObjects(store, "p")
    put(former, 5, a=b"one")
    snapshots = SnapshotObjects(store, "p")
    put(former, 6, late=b"of the owner before")
    put(snapshots, 7, b=b"two")
    put(snapshots, 8, c=b"three")
    assert "late" in parts(store)
    snapshots.erase_older(lambda: None)
    assert parts(store) == ["b", "c"]
    assert len(store.object_names("p/snapshots/")) == 2

    put(SnapshotObjects(store, "p"), 9, d=b"of the next owner")

    def overtaken() -> None:
        raise Fenced("another owner wrote")

    with pytest.raises(Fenced):
        snapshots.erase_older(overtaken)
    assert "d" in parts(store)


class Together(MemoryRecordStore):
    """Notes how often it is asked; of what is asked for together it gives some, and one altered."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self.alone: list[str] = []
        self.leaves_out, self.alters = "", ""

    def get_objects(self, names: Sequence[str]) -> dict[str, bytes]:
        self.asked.append([name.rpartition("/")[2] for name in names])
        found = {name: MemoryRecordStore.get_object(self, name) for name in names}
        if self.alters:
            found[f"p/parts/{self.alters}"] = b"of an older copy"
        return {
            name: content
            for name, content in found.items()
            if content is not None and not name.endswith(f"/{self.leaves_out}")
        }

    def get_object(self, name: str) -> bytes | None:
        self.alone.append(name.rpartition("/")[2])
        return super().get_object(name)


def test_what_a_start_needs_is_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Together()
    snapshots = SnapshotObjects(store, "p")
    put(snapshots, 5, a=b"one", b=b"two")
    put(snapshots, 6, a=b"one", b=b"two", c=b"three", d=b"x" * 50)
    store.asked.clear()
    assert bytes(SnapshotObjects(store, "p").read("c")) == b"three"
    manifests, parts = store.asked
    assert [int(one) for one in manifests] == [5, 6]
    assert sorted(parts) == ["a", "b", "c", "d"]
    assert store.alone == []
    monkeypatch.setattr(snapshot_objects, "_TOGETHER_BYTES", 10)
    store.asked.clear()
    assert bytes(SnapshotObjects(store, "p").read("d")) == b"x" * 50
    assert [sorted(one) for one in store.asked[1:]] == [["a", "b"], ["c"], ["d"]]


def test_what_does_not_come_together_is_asked_for_alone() -> None:
    store = Together()
    put(SnapshotObjects(store, "p"), 5, a=b"one", b=b"two")
    store.leaves_out, store.alters = "a", "b"
    again = SnapshotObjects(store, "p")
    assert [bytes(again.read("a")), bytes(again.read("b"))] == [b"one", b"two"]
    assert (sorted(store.alone), again.damaged) == (["a", "b"], [])
