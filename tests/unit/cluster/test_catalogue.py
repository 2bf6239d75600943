from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dejaqueue.clock import SteadyClock
from dejaqueue.cluster.catalogue import PREFIX, TOMBSTONE_MS, ClusterCatalogue, Kept, State
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import BadRequest, JournalDamaged, TopicExists, TopicUnknown, Unavailable
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic


class SteppedClock(SteadyClock):
    """Elapsed time that a test lets pass."""

    us = 0

    def now_us(self) -> int:
        return super().now_us() + self.us


@pytest.fixture
def facts() -> Iterator[ProcessFacts]:
    made = ProcessFacts()
    yield made
    made.close()


@pytest.fixture
def two(facts: ProcessFacts) -> tuple[ClusterCatalogue, ClusterCatalogue]:
    store = MemoryStore()
    return ClusterCatalogue(facts.open(), store), ClusterCatalogue(facts.open(), store)


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


def test_a_topic_is_deleted_in_two_steps(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    second.delete("t")
    second.delete("t")  # who did not hear of it may say so again
    with pytest.raises(TopicUnknown):
        second.get("t")
    with pytest.raises(TopicUnknown):
        second.journals("t")
    assert second.leaving() == ("t",)
    with pytest.raises(Unavailable, match="is being deleted"):
        first.create(Topic("t"), exist_ok=True)
    first.buried("t")
    assert first.leaving() == ("t",)  # its owner has not let go of it


def test_a_topic_that_was_let_go_of_is_buried_and_made_again_with_other_journals(two: Two) -> None:
    first, second = two
    first.create(Topic("t", spread=2, partitions=2), exist_ok=False)
    before = first.journals("t")
    second.delete("t")
    shards = Topic("t", spread=2, partitions=2).shards
    for shard in shards:
        second.buried("t")
        second.refresh()
        assert second.leaving() == ("t",)
        first.let_go("t", shard)
        first.let_go("t", shard)
    first._store.drop(before)
    second.buried("t")
    assert second.leaving() == ()
    assert second.words() == set()
    with pytest.raises(TopicUnknown):
        second.delete("t")
    first.create(Topic("t"), exist_ok=False)
    assert first.journals("t") != before
    with pytest.raises(TopicUnknown):
        second.delete("u")


def test_a_topic_is_there_when_its_journals_may_be_opened(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    seen: list[object] = []

    def make(self: MemoryStore, journals: str, text: str) -> None:
        second.refresh()
        seen.append((journals, second.find("t")))
        with pytest.raises(Unavailable, match="is being made"):
            second.create(Topic("t"), exist_ok=True)

    monkeypatch.setattr(MemoryStore, "make", make)
    first.create(Topic("t"), exist_ok=False)
    assert seen == [(first.journals("t"), None)]
    second.refresh()
    assert second.journals("t") == first.journals("t")


def test_what_could_not_be_made_is_deleted(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two

    def make(self: MemoryStore, journals: str, text: str) -> None:
        raise Unavailable("no server", 100)

    with monkeypatch.context() as patch, pytest.raises(Unavailable, match="no server"):
        patch.setattr(MemoryStore, "make", make)
        first.create(Topic("t"), exist_ok=False)
    second.refresh()
    assert second.leaving() == ("t",)
    second.buried("t")
    second.create(Topic("t"), exist_ok=False)


def making(catalogue: ClusterCatalogue) -> Kept:
    """A topic whose maker says that it makes it, and nothing more."""
    return catalogue._write(Kept(Topic("t"), (1,), "t.word", 0, State.MAKING, catalogue.maker))


def test_what_a_dead_broker_was_making_is_deleted_and_nothing_else(two: Two) -> None:
    first, second = two
    first.maker, second.maker = "one", "two"
    making(first)
    second.refresh()
    assert second.abandoned(["one", "two"]) == ()
    second.finish("t", ["one", "two"])
    assert second.leaving() == ()
    assert second.abandoned(["two"]) == ("t",)
    second.finish("t", ["two"])
    assert second.leaving() == ("t",)
    assert second.abandoned(["two"]) == ()


@pytest.mark.parametrize("has_text", [True, False])
def test_what_a_dead_broker_made_lives_though_it_did_not_say_so(
    two: Two, *, has_text: bool
) -> None:
    """Nor does a coordinator that was restored from a copy of that moment say so."""
    first, second = two
    first.maker, second.maker = "one", "two"
    made = making(first)
    noted = replace(made, topic=Topic("t", lease_ms=7_000), state=State.LIVING, edition=3)
    first._store.make("t.word", noted.to_bytes().decode() if has_text else "")
    second.refresh()
    second.finish("t", ["two"])
    assert second.get("t").lease_ms == (7_000 if has_text else Topic("t").lease_ms)
    assert second.journals("t") == "t.word"
    first.refresh()
    assert first.get("t") == second.get("t")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_maker_that_is_told_that_its_topic_lives_has_made_it(
    two: Two, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    """Others took it for dead, and finished what it had begun; or deleted that, too."""
    first, second = two
    first.maker, second.maker = "one", "two"
    make = MemoryStore.make

    def slow(self: MemoryStore, journals: str, text: str = "") -> None:
        make(self, journals, text)
        monkeypatch.undo()
        second.refresh()
        second.finish("t", ["two"])
        if is_deleted:
            second.delete("t")

    monkeypatch.setattr(MemoryStore, "make", slow)
    if is_deleted:
        with pytest.raises(Unavailable, match="is being deleted"):
            first.create(Topic("t"), exist_ok=False)
    else:
        assert first.create(Topic("t"), exist_ok=False) == Topic("t")
        assert second.journals("t") == first.journals("t")


def test_what_is_not_in_a_list_is_not_gone(
    two: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)
    mine.refresh()
    with monkeypatch.context() as patch:
        patch.setattr(mine._coordinator, "list", lambda prefix: [])
        assert not mine.refresh()
        assert not mine.refresh()
        assert mine.get("t").name == "t"
    assert caplog.text.count("nobody deleted them: t") == 1
    other.delete("t")
    mine.refresh()
    assert mine.find("t") is None


def test_an_older_answer_changes_nothing(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)
    stale = other._coordinator.list(PREFIX)
    other.delete("t")
    mine.refresh()
    monkeypatch.setattr(mine._coordinator, "list", lambda prefix: stale)
    monkeypatch.setattr(mine._coordinator, "get", lambda key: stale[0])
    mine.refresh()
    with pytest.raises(TopicUnknown):
        mine.get("t")


def test_who_heard_nothing_for_longer_than_tombstones_stay_begins_anew(
    facts: ProcessFacts,
) -> None:
    clock = SteppedClock()
    store = MemoryStore()
    mine = ClusterCatalogue(facts.open(), store, clock)
    other = ClusterCatalogue(facts.open(), store)
    other.create(Topic("t"), exist_ok=False)
    mine.refresh()
    other._coordinator.delete(f"{PREFIX}t")  # as when its tombstone has vanished
    mine.refresh()
    assert mine.find("t") is not None
    clock.us += TOMBSTONE_MS * 1_000
    mine.refresh()
    assert mine.find("t") is None


def test_a_fact_that_is_no_topic_is_named(facts: ProcessFacts) -> None:
    facts.open().put(f"{PREFIX}t", b"{}")
    with pytest.raises(JournalDamaged, match="topics/t"):
        ClusterCatalogue(facts.open(), MemoryStore())


def test_a_topic_that_another_broker_made_is_known_before_any_bell(two: Two) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)
    assert mine.find("t") is None
    assert mine.get("t").name == "t"
    assert mine.refresh()  # who serves by it is told all the same
    assert not mine.refresh()
    with pytest.raises(TopicUnknown):
        mine.get("u")


def test_who_cannot_ask_does_not_say_that_a_topic_is_unknown(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)

    def fails(key: str) -> object:
        raise Unavailable("the coordinator is away")

    with monkeypatch.context() as patch:
        patch.setattr(mine._coordinator, "get", fails)
        with pytest.raises(Unavailable):
            mine.get("t")
    assert mine.get("t").name == "t"
