"""One snapshot of all views of a partition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dejaqueue.engine.engine import Engine
from dejaqueue.engine.snapshot import plan_snapshot
from dejaqueue.engine.view_snapshots import (
    abandon_views_snapshot,
    begin_views_snapshot,
    plan_views_snapshot,
    restore_views,
)
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import JournalDamaged
from tests.unit.engine.test_views import Partition


class Shelf:
    """Files that snapshots were stored in."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.meta = ""

    def store(self, meta: str, files: Any) -> None:
        for name, content in files:
            if content is None:
                assert name in self.files
            else:
                assert name not in self.files, "a name is never used again"
                self.files[name] = memoryview(bytes(content))
        self.meta = meta

    def restored(self) -> PartitionViews:
        return restore_views(self.meta, lambda name: self.files[name])


def test_what_is_restored_has_the_hash_of_what_was_planned() -> None:
    partition, shelf = Partition(), Shelf()
    partition.send(5, 6, 7)
    one, _ = partition.open("a", live=True), partition.open("log", live=True, by_arrival=True)
    for _ in range(3):
        partition.send(8, 9)
        leased = partition.lease(one, 2)
        shelf.store(*plan_views_snapshot(partition.views))
        found = shelf.restored()
        found.check()
        assert found.state_hash() == partition.views.state_hash()
        assert [view.name for view in found.named.values()] == ["a", "log"]
        partition.ack(one, leased)
    partition.views = shelf.restored()
    assert partition.open("b") == 3


def test_without_named_views_a_snapshot_is_what_it_was_before() -> None:
    partition, other = Partition(), Partition()
    partition.send(5)
    other.send(5)
    assert plan_views_snapshot(partition.views) == plan_snapshot(other.views.unnamed)
    assert "views" not in json.loads(begin_views_snapshot(PartitionViews(Engine(0))).meta)


def test_after_one_that_was_not_stored_all_is_written_anew() -> None:
    partition, shelf = Partition(), Shelf()
    partition.open("a")
    partition.send(5)
    begin_views_snapshot(partition.views)
    abandon_views_snapshot(partition.views)
    shelf.store(*plan_views_snapshot(partition.views))
    assert shelf.restored().state_hash() == partition.views.state_hash()


def test_garbage_is_damage() -> None:
    partition, shelf = Partition(), Shelf()
    partition.open("a")
    shelf.store(*plan_views_snapshot(partition.views))
    shelf.meta = json.dumps(json.loads(shelf.meta) | {"views": [[1, "a"]]})
    with pytest.raises(JournalDamaged):
        shelf.restored()
