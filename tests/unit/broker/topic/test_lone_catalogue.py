"""Covers: the catalogue of a broker that is alone: what is there again, and the steps of a topic.

Not covered: what may be made and altered (test_catalogue.py).
"""

from __future__ import annotations

import pytest

from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.errors import BadRequest, JournalDamaged, TopicUnknown, Unavailable
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic


def test_topics_are_there_after_a_restart() -> None:
    store = MemoryStore()
    first = LoneCatalogue(store)
    first.create(Topic("a", partitions=3), exist_ok=False)
    first.alter("a", {"partitions": 5})
    first.close()
    again = LoneCatalogue(store)
    assert again.all() == [Topic("a", partitions=5)]
    assert (again.counts("a"), again.count, again.names()) == ((3, 5), 1, ["a"])


def test_a_topic_has_no_journals_before_it_is_used() -> None:
    store = MemoryStore()
    catalogue = LoneCatalogue(store)
    catalogue.create(Topic("a"), exist_ok=False)
    number = catalogue.number("a")
    assert (catalogue.is_used("a"), "a" in store.made()) == (False, False)
    for _ in range(2):
        catalogue.use("a", number)
        assert (catalogue.is_used("a"), "a" in store.made()) == (True, True)
    with pytest.raises(TopicUnknown):
        catalogue.use("a", number + 1)  # of a topic that had the name before or will have it


def test_several_are_used_with_one_change__and_who_cannot_be_is_left() -> None:
    store = MemoryStore()
    catalogue = LoneCatalogue(store)
    for name in ("a", "b", "c"):
        catalogue.create(Topic(name), exist_ok=False)
    appended = catalogue._log._journal
    assert appended is not None
    before = appended.tail
    numbers = {name: catalogue.number(name) for name in ("a", "b", "c")}
    catalogue.use_all([("a", numbers["a"]), ("b", numbers["b"]), ("c", 99), ("gone", 98)])
    assert [catalogue.is_used(name) for name in ("a", "b", "c")] == [True, True, False]
    assert {"a", "b"} <= set(store.made())
    assert "c" not in store.made()
    catalogue.use_all(numbers.items())  # again: of the last one alone
    catalogue.use_all(numbers.items())
    assert catalogue.is_used("c")
    assert appended.tail == before + 3
    assert [topic.name for topic in LoneCatalogue(store_of(catalogue)).used()] == ["a", "b", "c"]


def store_of(catalogue: LoneCatalogue) -> MemoryStore:
    """Its store, which it has let go of."""
    catalogue.close()
    store = catalogue._store
    assert isinstance(store, MemoryStore)
    return store


def test_the_end_of_a_topic_takes_three_steps__and_its_ids_go_on() -> None:
    catalogue = LoneCatalogue(MemoryStore())
    catalogue.create(Topic("a"), exist_ok=False)
    catalogue.use("a", catalogue.number("a"))
    catalogue.delete("a")
    assert (catalogue.find("a"), catalogue.leaving()) == (None, ("a",))
    with pytest.raises(Unavailable, match="is being deleted"):
        catalogue.create(Topic("a"), exist_ok=False)
    catalogue.closed("a", 77)
    row = catalogue.row_of("a")
    assert row is not None
    assert row.is_closed
    catalogue.buried("a")
    catalogue.buried("a")
    assert (catalogue.changing(), catalogue.row_of("a")) == ((), None)
    catalogue.create(Topic("a"), exist_ok=False)
    assert (catalogue.ids_from("a"), catalogue.is_used("a")) == (77, False)


def test_a_catalogue_that_was_lost_is_not_taken_for_a_new_one() -> None:
    store = MemoryStore()
    for name in ("a", "b"):
        store.make(name)
    for _ in range(2):  # it is let go of
        with pytest.raises(JournalDamaged, match="empty, though there are journals of 2 topics: a"):
            LoneCatalogue(store)


def test_letters_do_not_travel_between_spreads() -> None:
    catalogue = LoneCatalogue(MemoryStore())
    catalogue.create(Topic("a", spread=2, partitions=2), exist_ok=False)
    with pytest.raises(BadRequest, match=r"topic\.spread: that of a"):
        catalogue.create(Topic("a.dead"), exist_ok=False)
    catalogue.delete("a")
    catalogue.create(Topic("a.dead"), exist_ok=False)
    catalogue.buried("a")
    with pytest.raises(BadRequest, match=r"topic\.spread: that of a\.dead"):
        catalogue.create(Topic("a", spread=2, partitions=2), exist_ok=False)
