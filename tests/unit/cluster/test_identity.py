"""One cluster, one coordinator, one store of journals.

Covered: who makes a cluster, who may join, what is refused, makers that die. Not here: real brokers
(tests/cluster/test_restored.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dejaqueue.catalogue.changes import FoundedCluster, MadeTopic
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.clock import Clock, SteadyClock, Wake
from dejaqueue.cluster.identity import KEY, Identity, _found, _look, agree
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic


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
SLOTS = 8


def opened(store: MemoryRecordStore) -> CatalogueLog:
    return CatalogueLog(RecordJournalStore(store))


def agreed(
    coordinator: Coordinator,
    store: MemoryRecordStore,
    clock: Clock = CLOCK,
    *,
    slots: int = SLOTS,
    adopts: bool = False,
) -> str:
    """What the cluster is called; it has the slots that it was made with."""
    found, log = agree(coordinator, lambda: opened(store), clock, slots=slots, adopts=adopts)
    log.close()
    assert found.slots == SLOTS
    return found.id


def written(is_kept: bool = False) -> Identity:
    return Identity("a" * 16, SLOTS, is_kept=is_kept, maker="dead")


@pytest.fixture
def facts() -> Iterator[ProcessFacts]:
    made = ProcessFacts()
    yield made
    made.close()


def kept(store: MemoryRecordStore) -> object:
    cluster = opened(store).state.cluster
    return None if cluster is None else cluster.id


def test_the_first_broker_makes_a_cluster_and_the_others_find_it(facts: ProcessFacts) -> None:
    store = MemoryRecordStore()
    name = agreed(facts.open(), store)
    assert len(name) == 16
    assert [agreed(facts.open(), store) for _ in range(3)] == [name] * 3
    assert kept(store) == name


def test_brokers_that_make_a_cluster_at_once_make_one(facts: ProcessFacts) -> None:
    store, names = MemoryRecordStore(), []
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait()
        names.append(agreed(facts.open(), store))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == [kept(store)] * 8


@pytest.mark.parametrize("at_once", [False, True])
def test_journals_of_ones_own_are_refused(facts: ProcessFacts, at_once: bool) -> None:
    """Two directories, or two databases, and one coordinator."""
    stores, found = [MemoryRecordStore(), MemoryRecordStore()], []
    gate = threading.Barrier(2 if at_once else 1)

    def start(store: MemoryRecordStore) -> None:
        gate.wait()
        try:
            found.append(agreed(facts.open(), store))
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
    elsewhere, store = ProcessFacts(), MemoryRecordStore()
    other = agreed(elsewhere.open(), store)
    agreed(facts.open(), MemoryRecordStore())
    with pytest.raises(Refused, match=f"journals here belong to cluster {other}"):
        agreed(facts.open(), store)
    elsewhere.close()


def test_a_coordinator_that_knows_nothing_is_refused_but_if_asked(facts: ProcessFacts) -> None:
    lost, store = ProcessFacts(), MemoryRecordStore()
    name = agreed(lost.open(), store)
    lost.close()
    with pytest.raises(Refused, match=f"belong to cluster {name}: .*cluster.adopt"):
        agreed(facts.open(), store)
    assert agreed(facts.open(), store, adopts=True) == name
    assert agreed(facts.open(), store) == name


@pytest.mark.parametrize("has_written", [False, True])
def test_a_maker_that_died_is_made_up_for(facts: ProcessFacts, has_written: bool) -> None:
    coordinator, store = facts.open(), MemoryRecordStore()
    coordinator.put(KEY, written().to_bytes(), 0)
    if has_written:
        _found(opened(store), written())
    assert agreed(coordinator, store, HurriedClock()) == "a" * 16
    assert kept(store) == "a" * 16
    with pytest.raises(Refused):
        agreed(coordinator, MemoryRecordStore())


def test_many_that_are_tired_of_waiting_do_not_replace_each_other_for_ever(
    facts: ProcessFacts,
) -> None:
    """Found by seed 5065 of simulated clusters: each took over from the one before, and nobody
    came to write."""
    store = MemoryRecordStore()
    facts.open().put(KEY, written().to_bytes(), 0)
    makers = [Identity("", SLOTS, is_kept=False, maker=f"maker {number}") for number in range(3)]
    looks = [(facts.open(), new) for new in makers]
    for coordinator, new in looks:
        _look(coordinator, opened(store), new, adopts=False, replaces=True)
    found = [_look(one, opened(store), new, adopts=False, replaces=True) for one, new in looks]
    assert [one and one.id for one in found] == ["a" * 16] * 3


def test_what_cannot_be_read_is_damage(facts: ProcessFacts) -> None:
    coordinator = facts.open()
    coordinator.put(KEY, b"{}", 0)
    with pytest.raises(JournalDamaged, match=KEY):
        agreed(coordinator, MemoryRecordStore())


def test_a_cluster_keeps_the_slots_that_it_was_made_with(facts: ProcessFacts) -> None:
    """Whatever is configured later, and wherever its coordinator was lost."""
    store, lost = MemoryRecordStore(), ProcessFacts()
    name = agreed(lost.open(), store)
    assert agreed(lost.open(), store, slots=SLOTS * 2) == name
    lost.close()
    assert agreed(facts.open(), store, slots=SLOTS * 2, adopts=True) == name


def test_journals_that_lie_in_other_slots_are_refused(facts: ProcessFacts) -> None:
    store, other = MemoryRecordStore(), MemoryRecordStore()
    name = agreed(facts.open(), store)
    opened(other).change(lambda: FoundedCluster(name, SLOTS + 1))
    with pytest.raises(Refused, match="belong to cluster"):
        agreed(facts.open(), other)


def test_journals_of_a_broker_that_is_alone_are_refused(facts: ProcessFacts) -> None:
    store = MemoryRecordStore()
    opened(store).change(lambda: MadeTopic(Topic("t")))
    with pytest.raises(Refused, match="belong to a broker that is alone"):
        agreed(facts.open(), store)


def test_who_comes_second_founds_nothing() -> None:
    store = MemoryRecordStore()
    logs = [opened(store), opened(store)]
    for log, name in zip(logs, ("one", "two"), strict=True):
        _found(log, Identity(name, SLOTS, is_kept=False, maker="m"))
    assert [log.state.cluster for log in logs] == [FoundedCluster("one", SLOTS)] * 2
