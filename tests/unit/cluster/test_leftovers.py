"""Covers: who lets go of a deleted topic and who drops its journals, and when; what is tidied up.

Not covered: the rounds that ask for it (test_node.py), and brokers that die meanwhile (the
simulated cluster).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog
from dejaqueue.clock import SteadyClock
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.leftovers import Leftovers
from dejaqueue.cluster.placement import dealt
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from tests.patience import until

SLOTS = 4
NODES = ("a", "b")


class Site:
    """One broker's store and catalogue, with a topic that was used and is deleted."""

    def __init__(self) -> None:
        self.store = RecordJournalStore(MemoryRecordStore())
        self.tidied: list[Collection[str]] = []
        self.catalogue = ClusterCatalogue(
            self.store, CatalogueLog(self.store), ProcessFacts().open()
        )
        self.catalogue.create(Topic("t"), exist_ok=False)
        self.catalogue.use("t", self.catalogue.number("t"))
        self.catalogue.delete("t")

    def broker(self, *, has_let_go: bool = True) -> Broker:
        store = SimpleNamespace(tidy=self.tidied.append)
        return cast("Broker", SimpleNamespace(store=store, has_let_go=lambda name: has_let_go))

    @property
    def waits(self) -> tuple[str, ...]:
        row = self.catalogue.row_of("t")
        return () if row is None else row.waits


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.catalogue.close()
    made.store.close()


class Seen:
    """Counts what was done beside the rounds."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_the_owner_of_the_slot_says_that_a_topic_is_let_go_of__once_it_is(site: Site) -> None:
    seen = Seen()
    leftovers = Leftovers("a", Threads(), lambda name: 1, seen, SteadyClock())
    assert leftovers.let_go(site.broker(), site.catalogue, {0, 2})  # another's slot
    assert not leftovers.let_go(site.broker(has_let_go=False), site.catalogue, {1})
    assert (site.waits, seen.count) == (("t",), 0)
    assert leftovers.let_go(site.broker(), site.catalogue, {1})
    until(lambda: seen.count == 1, "it is let go of")
    assert site.catalogue.changing() == ("t",)
    assert not site.waits


def test_one_broker_drops_the_journals__when_nobody_serves_them(site: Site) -> None:
    slot = dealt(NODES, SLOTS).index("a")
    seen = {name: Seen() for name in NODES}
    by_name = {
        name: Leftovers(name, Threads(), lambda topic: slot, seen[name], SteadyClock())
        for name in NODES
    }
    for one in by_name.values():
        one.bury(site.broker(), site.catalogue, NODES, SLOTS)
    assert (seen["a"].count, seen["b"].count) == (0, 0)  # it waits to be let go of
    by_name["b"].let_go(site.broker(), site.catalogue, {slot})
    until(lambda: seen["b"].count == 1, "it is let go of")
    by_name["b"].bury(site.broker(), site.catalogue, NODES, SLOTS)
    assert seen["b"].count == 1
    by_name["a"].bury(site.broker(), site.catalogue, NODES, SLOTS)
    until(lambda: seen["a"].count == 1, "somebody has seen to it")
    assert site.catalogue.changing() == ()
    assert site.store.made() == []


def test_what_is_kept_here_of_a_topic_that_is_gone_is_tidied_up_once(site: Site) -> None:
    leftovers = Leftovers("a", Threads(), lambda name: 0, lambda: None, SteadyClock())
    leftovers.bury(site.broker(), site.catalogue, ["b"], SLOTS)
    assert site.tidied == []
    row = site.catalogue.row_of("t")
    assert row is not None
    site.catalogue.let_go(row, ["t"])
    site.catalogue.bury(row)
    for _ in range(2):
        leftovers.bury(site.broker(), site.catalogue, ["b"], SLOTS)
    assert site.tidied == [{JOURNAL}]
