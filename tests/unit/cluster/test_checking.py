"""What the catalogue and the store of journals say of one another.

Not covered: real ones (tests/cluster/test_restored.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.checking import Astray, Lack, check
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic


class Site:
    """Brokers, one after the other, and what they share."""

    def __init__(self) -> None:
        self.facts, self.records = ProcessFacts(), MemoryRecordStore()
        self.store = RecordJournalStore(self.records)

    def broker(self) -> ClusterCatalogue:
        store = RecordJournalStore(self.records)
        return ClusterCatalogue(store, CatalogueLog(store), self.facts.open())


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.facts.close()
    made.store.close()


def test_nothing_is_astray_where_nothing_happened(site: Site) -> None:
    broker = site.broker()
    assert check(broker, site.store) == []
    for name in ("a", "b.c", "unused"):
        broker.create(Topic(name), exist_ok=False)
    for name in ("a", "b.c"):
        broker.use(name, broker.number(name))
    assert check(broker, site.store) == []
    broker.delete("b.c")
    assert check(broker, site.store) == []
    row = broker.row_of("b.c")
    assert row is not None
    broker.let_go(row, ["b.c"])
    broker.bury(row)
    assert check(broker, site.store) == check(site.broker(), site.store) == []
    assert site.store.made() == ["a.1"]


def test_a_topic_that_has_lost_its_journals_is_named(site: Site) -> None:
    broker = site.broker()
    broker.create(Topic("a.b"), exist_ok=False)
    broker.use("a.b", 1)
    site.records.drop_objects(["made/a.b.1"])
    assert check(broker, site.store) == [Astray("a.b", "a.b.1", Lack.JOURNALS)]


def test_journals_of_no_topic_are_named(site: Site) -> None:
    """As where the catalogue was replaced by an older copy."""
    broker = site.broker()
    broker.create(Topic("a"), exist_ok=False)
    for journals in ("t.7", "word", "t.0"):
        site.store.make(journals)
    found = check(broker, site.store)
    assert found == [Astray("", journals, Lack.TOPIC) for journals in ("t.0", "t.7", "word")]
    assert found[0].to_dict()["lack"] == "the catalogue knows no topic of these journals"
    assert site.store.made() == ["t.0", "t.7", "word"]


def test_journals_that_came_back_are_dropped_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever let them be made slept, and the topic was deleted meanwhile."""
    broker = site.broker()
    broker.create(Topic("t"), exist_ok=False)
    broker.delete("t")
    row = broker.row_of("t")
    assert row is not None
    broker.bury(row)
    broker.create(Topic("t"), exist_ok=False)
    site.store.make("t.1")
    site.store.open("t.1", 0).close()
    assert check(broker, site.store) == []
    assert "t.1 came back" in caplog.text
    assert site.store.made() == []
    assert [name for name, _ in site.records.logs] == ["=catalogue"]


def test_what_is_made_while_it_is_looked_for_is_not_astray(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = site.broker(), site.broker()
    made = RecordJournalStore.made

    def slow(self: RecordJournalStore) -> list[str]:
        monkeypatch.undo()
        other.create(Topic("t"), exist_ok=False)
        other.use("t", 1)
        return made(self)

    monkeypatch.setattr(RecordJournalStore, "made", slow)
    assert check(mine, site.store) == []
