"""Covers: what brokers alone and in clusters have in common of a catalogue that is a journal.

Not covered: the ends of topics (test_lone_catalogue.py, tests/unit/cluster/test_catalogue.py).
"""

from __future__ import annotations

import pytest

from dejaqueue.broker.topic.journal_catalogue import JournalCatalogue
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.catalogue.changes import FoundedCluster
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.errors import BadRequest, Refused, TopicExists, TopicUnknown, Unavailable
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def catalogue(store: MemoryStore) -> JournalCatalogue:
    return JournalCatalogue(store, CatalogueLog(store))


def test_topics_are_made_changed_used_and_deleted(
    catalogue: JournalCatalogue, store: MemoryStore
) -> None:
    for name in "ba":
        catalogue.create(Topic(name), exist_ok=False)
    assert ([topic.name for topic in catalogue.all()], catalogue.names()) == (
        ["a", "b"],
        ["b", "a"],
    )
    assert catalogue.count == 2
    catalogue.alter("a", {"partitions": 2})
    assert (catalogue.counts("a"), catalogue.counts("b")) == ((1, 2), (1,))
    catalogue.use("a", catalogue.number("a"))
    assert (catalogue.used(), catalogue.is_used("b")) == ([catalogue.get("a")], False)
    assert store.made() == ["=catalogue", "a"]
    catalogue.delete("a")
    assert catalogue.leaving() == catalogue.changing() == ("a",)
    with pytest.raises(Unavailable, match="is being deleted"):
        catalogue.create(Topic("a"), exist_ok=True)
    catalogue.close()


def test_what_is_unknown_or_there_is_refused(catalogue: JournalCatalogue) -> None:
    catalogue.create(Topic("a"), exist_ok=False)
    assert catalogue.create(Topic("a"), exist_ok=True) == Topic("a")
    with pytest.raises(TopicExists):
        catalogue.create(Topic("a"), exist_ok=False)
    for call in (catalogue.delete, catalogue.ids_from, lambda name: catalogue.alter(name, {})):
        with pytest.raises(TopicUnknown):
            call("b")
    with pytest.raises(TopicUnknown):
        catalogue.use("a", catalogue.number("a") + 1)


def test_letters_stay_between_topics_of_one_spread(catalogue: JournalCatalogue) -> None:
    catalogue.create(Topic("t", spread=2, partitions=2).check(), exist_ok=False)
    with pytest.raises(BadRequest, match="dead letters"):
        catalogue.create(Topic("t.dead"), exist_ok=False)
    catalogue.create(Topic("u"), exist_ok=False)
    with pytest.raises(BadRequest, match="dead letters"):
        catalogue.create(Topic("u.dead", spread=2, partitions=2).check(), exist_ok=False)


def test_journals_of_a_cluster_are_refused_by_a_broker_that_is_alone(store: MemoryStore) -> None:
    log = CatalogueLog(store)
    log.change(lambda: FoundedCluster("0123456789abcdef", 8))
    log.close()
    with pytest.raises(Refused, match="belong to cluster 0123456789abcdef"):
        LoneCatalogue(store)
