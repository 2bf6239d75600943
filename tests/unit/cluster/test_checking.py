"""What a coordinator and a store of journals say of one another.

Covered: topics that were made, changed and deleted after the coordinator's copy was taken; brokers
that know better and brokers that begin anew. Not here: real ones (tests/cluster/test_restored.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dejaqueue.cluster.catalogue import PREFIX, ClusterCatalogue, Kept, State
from dejaqueue.cluster.checking import Astray, Lack, check
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import Refused
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic


class Site:
    """Brokers, one after the other, and what they share."""

    def __init__(self) -> None:
        self.facts, self.store = ProcessFacts(), MemoryStore()

    def broker(self) -> ClusterCatalogue:
        return ClusterCatalogue(self.facts.open(), self.store)

    def copy(self) -> dict[str, bytes]:
        """What the coordinator has."""
        return {fact.key: fact.value for fact in self.facts.open().list(PREFIX)}

    def restore(self, copy: dict[str, bytes]) -> None:
        """Replace the coordinator by one with an older copy."""
        self.facts.close()
        self.facts = ProcessFacts()
        for key, value in copy.items():
            self.facts.open().put(key, value)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.facts.close()
    made.store.close()


def test_nothing_is_astray_where_nothing_happened(site: Site) -> None:
    broker = site.broker()
    assert check(broker, site.store, adopt=False) == []
    broker.create(Topic("a"), exist_ok=False)
    broker.create(Topic("b.c"), exist_ok=False)
    broker.alter("a", {"lease_ms": 7_000})
    broker.delete("b.c")
    broker.let_go("b.c", "b.c")
    assert check(broker, site.store, adopt=True) == []
    site.store.drop(broker.kept("b.c").journals)  # type: ignore[union-attr]
    broker.buried("b.c")
    assert check(broker, site.store, adopt=True) == []
    assert [topic.name for topic in site.broker().all()] == ["a"]


def test_topics_made_after_the_copy_are_known_again(site: Site) -> None:
    broker = site.broker()
    broker.create(Topic("old"), exist_ok=False)
    copy = site.copy()
    broker.create(Topic("new", partitions=3), exist_ok=False)
    broker.alter("new", {"lease_ms": 7_000})
    journals = broker.journals("new")
    site.restore(copy)
    fresh = site.broker()
    found = Astray("new", journals, Lack.FACT)
    assert check(fresh, site.store, adopt=False) == [found]
    assert [topic.name for topic in fresh.all()] == ["old"]
    assert check(fresh, site.store, adopt=True) == [Astray("new", journals, Lack.FACT, True)]
    again = site.broker()
    assert again.get("new") == Topic("new", partitions=3, lease_ms=7_000)
    assert again.journals("new") == fresh.journals("new") == journals
    assert check(again, site.store, adopt=False) == []


def test_partitions_that_came_after_the_copy_are_known_again(site: Site) -> None:
    broker = site.broker()
    broker.create(Topic("t"), exist_ok=False)
    copy = site.copy()
    broker.alter("t", {"partitions": 4})
    site.restore(copy)
    fresh = site.broker()
    assert fresh.get("t").partitions == 1
    assert [one.lack for one in check(fresh, site.store, adopt=True)] == [Lack.EDITION]
    assert (fresh.get("t").partitions, fresh.counts("t")) == (4, (1, 4))
    assert check(site.broker(), site.store, adopt=False) == []


@pytest.fixture
def making(site: Site, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A topic, and a copy of the coordinator from while it was made."""
    copies = []
    with monkeypatch.context() as patch:
        make = MemoryStore.make

        def copying(self: MemoryStore, journals: str, text: str = "") -> None:
            copies.append(site.copy())
            make(self, journals, text)

        patch.setattr(MemoryStore, "make", copying)
        site.broker().create(Topic("t"), exist_ok=False)
    return copies[0]


def test_a_topic_that_was_being_made_when_the_copy_was_taken_is_known_again(
    site: Site, making: dict[str, bytes]
) -> None:
    [journals] = site.store.made()
    site.restore(making)
    fresh = site.broker()
    assert check(fresh, site.store, adopt=False) == []  # as while somebody makes it
    assert fresh.find("t") is None
    assert check(fresh, site.store, adopt=True) == [Astray("t", journals, Lack.EDITION, True)]
    assert fresh.get("t") == site.broker().get("t") == Topic("t")
    assert check(fresh, site.store, adopt=True) == []


def test_who_knows_that_a_topic_lives_says_that_the_coordinator_does_not(
    site: Site, making: dict[str, bytes]
) -> None:
    broker = site.broker()
    site.restore(making)
    broker._coordinator = site.facts.open()
    assert [one.lack for one in check(broker, site.store, adopt=False)] == [Lack.EDITION]
    assert broker.get("t") == Topic("t")


@pytest.mark.parametrize("listed_before", [1, 2])
def test_a_topic_that_is_made_while_it_is_looked_for_is_not_astray(
    site: Site, monkeypatch: pytest.MonkeyPatch, listed_before: int
) -> None:
    """The journals were listed before they were made, and the fact was read after that."""
    maker, broker = site.broker(), site.broker()
    begun = maker._write(Kept(Topic("t"), (1,), "t.word", 0, State.MAKING, "one"))
    made = MemoryStore.made
    calls = itertools.count(1)

    def made_late(self: MemoryStore, prefix: str = "") -> dict[str, str]:
        listed = made(self, prefix)
        if next(calls) == listed_before:
            maker._store.make("t.word")
            maker._write(replace(begun, state=State.LIVING))
        return listed

    monkeypatch.setattr(MemoryStore, "made", made_late)
    assert check(broker, site.store, adopt=False) == []


@pytest.mark.parametrize("restored", [State.LIVING, State.DELETING, State.DELETED])
def test_a_topic_that_was_made_again_after_the_copy_is_known_again(
    site: Site, restored: State
) -> None:
    """The coordinator has the one before, of which the journals of this one know."""
    broker = site.broker()
    broker.create(Topic("t"), exist_ok=False)
    copies = {State.LIVING: site.copy()}
    broker.delete("t")
    copies[State.DELETING] = site.copy()
    broker.let_go("t", "t")
    site.store.drop(broker.kept("t").journals)  # type: ignore[union-attr]
    broker.buried("t")
    copies[State.DELETED] = site.copy()
    broker.create(Topic("t", partitions=2), exist_ok=False)
    journals = broker.journals("t")
    site.restore(copies[restored])
    fresh = site.broker()
    lacks = {one.lack for one in check(fresh, site.store, adopt=False)}
    assert Lack.EDITION in lacks
    assert check(fresh, site.store, adopt=True) == [Astray("t", journals, Lack.EDITION, True)]
    assert fresh.get("t") == site.broker().get("t") == Topic("t", partitions=2)
    assert check(site.broker(), site.store, adopt=True) == []


def test_a_broker_that_knows_better_goes_on(site: Site) -> None:
    broker = site.broker()
    copy = site.copy()
    broker.create(Topic("t"), exist_ok=False)
    for lease_ms in range(1_000, 5_000, 1_000):
        broker.alter("t", {"lease_ms": lease_ms})
    site.restore(copy)
    broker._coordinator = site.facts.open()
    broker.refresh()
    assert broker.get("t").lease_ms == 4_000
    assert broker.newest("t").lease_ms == 4_000
    assert broker.alter("t", {"lease_ms": 9_000}).lease_ms == 9_000
    assert site.broker().get("t").lease_ms == 9_000
    assert check(site.broker(), site.store, adopt=False) == []


def test_a_broker_that_knows_better_writes_over_an_older_fact(site: Site) -> None:
    broker = site.broker()
    broker.create(Topic("t"), exist_ok=False)
    copy = site.copy()
    for lease_ms in range(1_000, 5_000, 1_000):
        broker.alter("t", {"lease_ms": lease_ms})
    site.restore(copy)
    broker._coordinator = site.facts.open()
    assert broker.newest("t").lease_ms == 4_000
    broker.delete("t")
    assert broker.leaving() == ("t",)


def test_topics_deleted_after_the_copy_are_named(site: Site) -> None:
    broker = site.broker()
    broker.create(Topic("t"), exist_ok=False)
    copy, journals = site.copy(), broker.journals("t")
    site.store.drop(journals)
    site.restore(copy)
    fresh = site.broker()
    for _ in range(2):
        assert check(fresh, site.store, adopt=True) == [Astray("t", journals, Lack.JOURNALS)]


def test_a_name_of_a_topic_that_is_astray_is_not_given_anew(site: Site) -> None:
    """Programs that make their topics when they start would hide what is in the former ones."""
    broker = site.broker()
    copy = site.copy()
    broker.create(Topic("t"), exist_ok=False)
    site.restore(copy)
    fresh = site.broker()
    with pytest.raises(Refused, match="dejaq cluster check"):
        fresh.create(Topic("t"), exist_ok=True)
    fresh.create(Topic("t.x"), exist_ok=True)
    assert [one.adopted for one in check(fresh, site.store, adopt=True)] == [True]
    assert fresh.create(Topic("t"), exist_ok=True) == Topic("t")


def test_a_name_that_was_given_anew_is_not_taken_away(site: Site) -> None:
    """By the coordinator of before, when its newer copy is found."""
    broker = site.broker()
    broker.create(Topic("t", partitions=2), exist_ok=False)
    text = site.store.made()[broker.journals("t")]
    site.store.make("t.former", text.replace(broker.journals("t"), "t.former"))
    assert check(broker, site.store, adopt=True) == [Astray("t", "t.former", Lack.NAME)]
    assert broker.get("t").partitions == 2


@pytest.mark.parametrize("has_text", [True, False])
@pytest.mark.parametrize("asked", ["made again", "looked for"])
def test_journals_that_are_marked_as_made_after_they_were_dropped_are_dropped_again(
    site: Site, asked: str, *, has_text: bool
) -> None:
    """Whoever made it slept, or its call was late: others had deleted what it began."""
    broker = site.broker()
    broker.create(Topic("t"), exist_ok=False)
    former = broker.journals("t")
    text = site.store.made()[former]
    for _ in range(2):  # also when the name was given anew in between
        broker.delete("t")
        broker.let_go("t", "t")
        site.store.drop(broker.kept("t").journals)  # type: ignore[union-attr]
        broker.buried("t")
        site.store.make(former, text if has_text else "")
        if asked == "made again":
            broker.create(Topic("t"), exist_ok=False)
            assert set(site.store.made()) == {broker.journals("t")}
        else:
            assert check(broker, site.store, adopt=True) == []
            assert site.store.made() == {}
            broker.create(Topic("t"), exist_ok=False)


def test_journals_without_a_text_are_named(site: Site) -> None:
    site.store.make("whose")
    assert check(site.broker(), site.store, adopt=True) == [Astray("", "whose", Lack.TEXT)]


def test_a_text_that_is_damaged_hides_no_other_topic(site: Site) -> None:
    broker = site.broker()
    broker.create(Topic("a"), exist_ok=False)
    broker.create(Topic("b"), exist_ok=False)
    place = site.store._directory(broker.journals("a")) / "text.json"
    content = site.store._files._contents[place]  # type: ignore[attr-defined]
    content.memory[content.byte_count // 2] ^= 1
    assert site.store.made()[broker.journals("a")] == ""
    assert check(broker, site.store, adopt=False) == []
    site.restore({})
    lacks = {one.topic: one.lack for one in check(site.broker(), site.store, adopt=True)}
    assert lacks == {"": Lack.TEXT, "b": Lack.FACT}
