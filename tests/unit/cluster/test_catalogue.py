from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dejaqueue.cluster.catalogue import PREFIX, ClusterCatalogue
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import BadRequest, JournalDamaged, TopicExists, TopicUnknown, Unavailable
from dejaqueue.model import Topic


@pytest.fixture
def facts() -> Iterator[ProcessFacts]:
    made = ProcessFacts()
    yield made
    made.close()


@pytest.fixture
def two(facts: ProcessFacts) -> tuple[ClusterCatalogue, ClusterCatalogue]:
    return ClusterCatalogue(facts.open()), ClusterCatalogue(facts.open())


Two = tuple[ClusterCatalogue, ClusterCatalogue]


def test_what_one_makes_the_other_sees(two: Two) -> None:
    first, second = two
    first.create(Topic("t", partitions=3), exist_ok=False)
    assert second.refresh()
    assert second.get("t").partitions == 3
    assert second.journals("t") == first.journals("t")
    assert not second.refresh()


def test_a_topic_is_made_once(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    with pytest.raises(TopicExists):
        second.create(Topic("t"), exist_ok=False)
    assert second.create(Topic("t"), exist_ok=True) == Topic("t")
    with pytest.raises(TopicExists, match="partitions"):
        second.create(Topic("t", partitions=2), exist_ok=True)


def test_changes_of_two_brokers_are_both_there(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    second.alter("t", {"lease_ms": 7_000})
    first.alter("t", {"partitions": 2})
    second.refresh()
    assert (second.get("t").lease_ms, second.get("t").partitions) == (7_000, 2)
    assert second.counts("t") == (1, 2)


def test_what_cannot_change_is_refused(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    with pytest.raises(BadRequest, match="fixed"):
        second.alter("t", {"kind": "fair"})
    with pytest.raises(TopicUnknown):
        second.alter("u", {"lease_ms": 7_000})


def test_a_topic_made_again_has_other_journals(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    before = first.journals("t")
    second.delete("t")
    first.create(Topic("t"), exist_ok=False)
    assert first.journals("t") != before
    with pytest.raises(TopicUnknown):
        second.delete("u")


def test_a_fact_that_is_no_topic_is_named(facts: ProcessFacts) -> None:
    facts.open().put(f"{PREFIX}t", b"{}")
    with pytest.raises(JournalDamaged, match="topics/t"):
        ClusterCatalogue(facts.open())


def test_a_topic_that_another_broker_made_is_known_before_any_bell(two: Two) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)
    assert mine.find("t") is None
    assert mine.get("t").name == "t"
    assert mine.refresh()  # who serves by it is told all the same
    assert not mine.refresh()
    with pytest.raises(TopicUnknown):
        mine.get("u")


def test_a_list_that_failed_answers_nobody(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)
    answers, listing = mine._coordinator.list, threading.Event()

    def fails_once(prefix: str) -> object:
        if listing.is_set():
            return answers(prefix)
        listing.set()
        raise Unavailable("the coordinator is away")

    monkeypatch.setattr(mine._coordinator, "list", fails_once)
    with ThreadPoolExecutor(2) as threads:
        with mine._refreshing:  # both want to know before the first has asked
            found = [threads.submit(mine.get, "t") for _ in range(2)]
            threading.Event().wait(0.2)
        outcomes = [one.exception(10) for one in found]
    assert sorted(type(one).__name__ for one in outcomes) == ["NoneType", "Unavailable"]
