"""Covers: which topics lie in which slots, as the catalogue of the moment has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.layout import Layout
from dejaqueue.cluster.placement import hashed_slot
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic

SLOTS = 16


@pytest.fixture
def catalogue() -> Iterator[ClusterCatalogue]:
    facts, store = ProcessFacts(), MemoryStore()
    yield ClusterCatalogue(store, CatalogueLog(store), facts.open())
    facts.close()


def test_each_shard_is_in_the_slot_that_its_topic_starts_at_or_behind_it(
    catalogue: ClusterCatalogue,
) -> None:
    catalogue.start_of = lambda topic: 3 if topic.name == "t" else 9
    catalogue.create(Topic("t", spread=2).check(), exist_ok=False)
    catalogue.create(Topic("u"), exist_ok=False)
    assert Layout.of(catalogue, SLOTS).names == {}, "nobody used them yet"
    for name in "tu":
        catalogue.use(name, catalogue.number(name))
    layout = Layout.of(catalogue, SLOTS)
    assert layout.names == {3: ["t=0-2"], 4: ["t=1-2"], 9: ["u"]}
    assert [layout.slot(name) for name in ("t", "t=1-2", "u", "u.dead")] == [3, 4, 9, 9]
    assert layout.slot("unknown") == hashed_slot("unknown", SLOTS)


def test_what_is_being_deleted_is_served_by_nobody_and_still_has_its_slot(
    catalogue: ClusterCatalogue,
) -> None:
    catalogue.start_of = lambda topic: 3
    catalogue.create(Topic("t"), exist_ok=False)
    catalogue.use("t", catalogue.number("t"))
    catalogue.delete("t")
    layout = Layout.of(catalogue, SLOTS)
    assert (layout.names, layout.slot("t")) == ({}, 3)


def test_a_change_of_the_catalogue_makes_another_version(catalogue: ClusterCatalogue) -> None:
    before = Layout.of(catalogue, SLOTS)
    assert before.version == catalogue.version
    catalogue.create(Topic("t"), exist_ok=False)
    assert Layout.of(catalogue, SLOTS).version == catalogue.version > before.version
    catalogue.refresh()
    assert catalogue.version == Layout.of(catalogue, SLOTS).version


def test_nothing_lies_anywhere_before_a_catalogue_is_known() -> None:
    assert (Layout().version, Layout().names, Layout().slot("t")) == (-1, {}, 0)
