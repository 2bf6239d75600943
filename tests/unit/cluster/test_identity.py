"""One cluster, one coordinator, one store of journals.

Covered: who makes a cluster, who may join, what is refused, makers that die. Not here: real brokers
(tests/cluster/test_restored.py).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from dejaqueue.clock import SteadyClock, Wake
from dejaqueue.cluster.identity import DOCUMENT, KEY, Identity, _look, agree
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.memory import MemoryStore


class HurriedClock(SteadyClock):
    """Elapsed time in which waits are over at once."""

    us = 0

    def now_us(self) -> int:
        return self.us

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        assert instant_us is not None
        self.us = instant_us
        return False


CLOCK = SteadyClock()


@pytest.fixture
def facts() -> Iterator[ProcessFacts]:
    made = ProcessFacts()
    yield made
    made.close()


def kept(store: MemoryStore) -> object:
    text = store.load_document(DOCUMENT)
    return None if text is None else json.loads(text)["id"]


def test_the_first_broker_makes_a_cluster_and_the_others_find_it(facts: ProcessFacts) -> None:
    store = MemoryStore()
    name = agree(facts.open(), store, CLOCK)
    assert len(name) == 16
    assert [agree(facts.open(), store, CLOCK) for _ in range(3)] == [name] * 3
    assert kept(store) == name


def test_brokers_that_make_a_cluster_at_once_make_one(facts: ProcessFacts) -> None:
    store, names = MemoryStore(), []
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait()
        names.append(agree(facts.open(), store, CLOCK))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == [kept(store)] * 8


@pytest.mark.parametrize("at_once", [False, True])
def test_journals_of_ones_own_are_refused(facts: ProcessFacts, at_once: bool) -> None:
    """Two directories, or two databases, and one coordinator."""
    stores, found = [MemoryStore(), MemoryStore()], []
    gate = threading.Barrier(2 if at_once else 1)

    def start(store: MemoryStore) -> None:
        gate.wait()
        try:
            found.append(agree(facts.open(), store, CLOCK))
        except Refused as error:
            found.append(str(error))

    threads = [threading.Thread(target=start, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
        if not at_once:
            thread.join()
    for thread in threads:
        thread.join()
    [name] = [one for one in found if len(one) == 16]
    [refused] = [one for one in found if len(one) != 16]
    assert f"has cluster {name}, and the journals here belong to no cluster" in refused
    assert "journal.url" in refused


def test_journals_of_another_cluster_are_refused(facts: ProcessFacts) -> None:
    elsewhere, store = ProcessFacts(), MemoryStore()
    other = agree(elsewhere.open(), store, CLOCK)
    agree(facts.open(), MemoryStore(), CLOCK)
    with pytest.raises(Refused, match=f"journals here belong to cluster {other}"):
        agree(facts.open(), store, CLOCK)
    elsewhere.close()


def test_a_coordinator_that_knows_nothing_is_refused_but_if_asked(facts: ProcessFacts) -> None:
    lost, store = ProcessFacts(), MemoryStore()
    name = agree(lost.open(), store, CLOCK)
    lost.close()
    with pytest.raises(Refused, match=f"belong to cluster {name}: .*cluster.adopt"):
        agree(facts.open(), store, CLOCK)
    assert agree(facts.open(), store, CLOCK, adopts=True) == name
    assert agree(facts.open(), store, CLOCK) == name


@pytest.mark.parametrize("has_written", [False, True])
def test_a_maker_that_died_is_made_up_for(facts: ProcessFacts, has_written: bool) -> None:
    coordinator, store = facts.open(), MemoryStore()
    coordinator.put(KEY, Identity("a" * 16, is_kept=False, maker="dead").to_bytes(), 0)
    if has_written:
        store.store_document(DOCUMENT, json.dumps({"id": "a" * 16}))
    assert agree(coordinator, store, HurriedClock()) == "a" * 16
    assert kept(store) == "a" * 16
    with pytest.raises(Refused):
        agree(coordinator, MemoryStore(), CLOCK)


def test_many_that_are_tired_of_waiting_do_not_replace_each_other_for_ever(
    facts: ProcessFacts,
) -> None:
    """Found by seed 5065 of simulated clusters: each took over from the one before, and nobody
    came to write."""
    store = MemoryStore()
    facts.open().put(KEY, Identity("a" * 16, is_kept=False, maker="dead").to_bytes(), 0)
    looks = [(facts.open(), f"maker {number}") for number in range(3)]
    for coordinator, maker in looks:
        _look(coordinator, store, maker, adopts=False, replaces=True)
    found = [_look(one, store, maker, adopts=False, replaces=True) for one, maker in looks]
    assert found == ["a" * 16] * 3


def test_what_cannot_be_read_is_damage(facts: ProcessFacts) -> None:
    coordinator, store = facts.open(), MemoryStore()
    store.store_document(DOCUMENT, "[]")
    with pytest.raises(JournalDamaged, match="identity"):
        agree(coordinator, store, CLOCK)
    coordinator.put(KEY, b"{}", 0)
    with pytest.raises(JournalDamaged, match=KEY):
        agree(coordinator, MemoryStore(), CLOCK)
