"""Covers: who drops the journals of a deleted topic, and when.

Not covered: the rounds that ask for it (test_node.py), and brokers that die meanwhile (the
simulated cluster).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.cluster.catalogue import ClusterCatalogue, Kept, State
from dejaqueue.cluster.leftovers import Leftovers
from dejaqueue.cluster.placement import dealt
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import until

SLOTS = 4
NODES = ("a", "b")


def made() -> tuple[ClusterCatalogue, Any]:
    """A catalogue with a topic that is deleted and was not let go of, and its store."""
    facts = ProcessFacts(VirtualClock()).open()
    store = RecordJournalStore(MemoryRecordStore())
    catalogue = ClusterCatalogue(facts, store)
    catalogue.create(Topic("t"), exist_ok=False)
    catalogue.delete("t")
    return catalogue, store


def broker(store: Any, *, has_let_go: bool = True) -> Broker:
    return cast("Broker", SimpleNamespace(store=store, has_let_go=lambda name: has_let_go))


def test_the_owner_of_the_slot_says_that_a_topic_is_let_go_of__once_it_is() -> None:
    catalogue, store = made()
    leftovers = Leftovers("a", Threads(), lambda name: 1, lambda: None)
    kept = catalogue.kept("t")
    assert leftovers.let_go(broker(store), catalogue, {0, 2})  # another's slot
    assert catalogue.kept("t") == kept
    assert not leftovers.let_go(broker(store, has_let_go=False), catalogue, {1})
    assert leftovers.let_go(broker(store), catalogue, {1})
    kept = catalogue.kept("t")
    assert kept is not None
    assert not kept.waits


def test_one_broker_drops_the_journals__when_nobody_serves_them() -> None:
    catalogue, store = made()
    seen = threading.Event()
    slot = dealt(NODES, SLOTS).index("a")
    by_name = {name: Leftovers(name, Threads(), lambda topic: slot, seen.set) for name in NODES}
    for one in by_name.values():
        one.bury(broker(store), catalogue, NODES, SLOTS)
    assert not seen.is_set()  # it waits to be let go of
    by_name["b"].let_go(broker(store), catalogue, {slot})
    by_name["b"].bury(broker(store), catalogue, NODES, SLOTS)
    assert not seen.is_set()
    by_name["a"].bury(broker(store), catalogue, NODES, SLOTS)
    until(seen.is_set, "somebody has seen to it")
    kept = catalogue.kept("t")
    assert kept is not None
    assert kept.state is State.DELETED


def test_what_a_dead_broker_was_making_is_finished() -> None:
    catalogue, _ = made()
    seen = threading.Event()
    catalogue.maker = "dead"
    topic = Topic("u")
    kept = Kept(topic, (1,), "u.1", 0, State.MAKING, "dead")
    catalogue._write(kept)
    catalogue.maker = "living"
    Leftovers("a", Threads(), lambda name: 0, seen.set).finish(catalogue, ["dead", "living"])
    assert not seen.is_set()
    Leftovers("a", Threads(), lambda name: 0, seen.set).finish(catalogue, ["living"])
    until(seen.is_set, "somebody has seen to it")
    left = catalogue.kept("u")
    assert left is not None
    assert left == replace(left, state=State.DELETING)
