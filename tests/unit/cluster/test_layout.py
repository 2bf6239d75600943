"""Covers: which topics lie in which slots, as the catalogue of the moment has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from dejaqueue.catalogue.changes import ClosedTopic, DeletedTopic
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.layout import Layout
from dejaqueue.cluster.placement import hashed_slot
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import BadRequest
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


DEAD = {"dead_letter": "dead"}


@pytest.mark.parametrize("seed", range(30))
def test_what_follows_each_change_is_what_all_topics_make(
    catalogue: ClusterCatalogue, seed: int
) -> None:
    dice = Random(seed)
    plain = dice.random() < 0.5
    catalogue.start_of = lambda topic: (
        hashed_slot(topic.name, SLOTS) if plain or dice.random() < 0.8 else dice.randrange(SLOTS)
    )
    names = ["t", "u", "v", "dead", "t.dead"]
    layout = Layout.of(catalogue, SLOTS)
    for _ in range(60):
        for _ in range(dice.choice([1, 1, 3])):
            _change(catalogue, dice, names, plain=plain)
        layout = layout.after(catalogue, SLOTS)
        anew = Layout.of(catalogue, SLOTS)
        assert (layout.version, layout.names) == (anew.version, anew.names)
        asked = [*names, "t=0-2", "t=1-2", "other"]
        assert [layout.slot(name) for name in asked] == [anew.slot(name) for name in asked]


def _change(catalogue: ClusterCatalogue, dice: Random, names: list[str], *, plain: bool) -> None:
    name = dice.choice(names)
    if catalogue.find(name) is None:
        row = catalogue.row_of(name)
        if row is None:
            odds: list[dict[str, Any]] = [DEAD, {"spread": 2}]
            odd = {} if plain or dice.random() < 0.7 else dice.choice(odds)
            with suppress(BadRequest):
                catalogue.create(Topic(name, **odd).check(), exist_ok=False)
        elif row.waits:
            catalogue._change(lambda: ClosedTopic(name, row.ids_from))
        else:
            catalogue._change(lambda: DeletedTopic(name))
    elif not catalogue.is_used(name) and dice.random() < 0.7:
        catalogue.use(name, catalogue.number(name))
    elif dice.random() < 0.5:
        catalogue.alter(name, {"lease_ms": dice.randrange(1_000, 9_000)})
    else:
        catalogue.delete(name)


def test_one_change_of_many_topics_is_looked_at_alone(
    catalogue: ClusterCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue.start_of = lambda topic: hashed_slot(topic.name, SLOTS)
    catalogue.create(Topic("t"), exist_ok=False)
    layout = Layout.of(catalogue, SLOTS)
    monkeypatch.setattr(ClusterCatalogue, "rows", lambda self: pytest.fail("all are looked at"))
    catalogue.create(Topic("u"), exist_ok=False)
    catalogue.use("u", catalogue.number("u"))
    after = layout.after(catalogue, SLOTS)
    assert after.served(after.slot("u")) == ["u"]
    assert not layout.names, "the one before is as it was"
