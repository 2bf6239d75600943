"""Covers: the catalogue that brokers share: changes of several, what is said to be unknown, the end
of a topic, ids of a name that is made again.

Not covered: the journal below it (tests/unit/catalogue), who lets go when (test_node.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dejaqueue.broker.shard.entries import to_entry
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.cluster.catalogue import KEY, ClusterCatalogue
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.engine.commands import OpenEpoch
from dejaqueue.errors import BadRequest, Fenced, TopicExists, TopicUnknown, Unavailable
from dejaqueue.journal.interface import Entry, EntryKind
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic


class Site:
    """Brokers' catalogues, and what they share."""

    def __init__(self) -> None:
        self.facts, self.records = ProcessFacts(), MemoryRecordStore()
        self.stores: list[RecordJournalStore] = []

    def broker(self) -> ClusterCatalogue:
        store = RecordJournalStore(self.records)
        self.stores.append(store)
        return ClusterCatalogue(store, CatalogueLog(store), self.facts.open())


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.facts.close()
    for store in made.stores:
        store.close()


Two = tuple[ClusterCatalogue, ClusterCatalogue]


@pytest.fixture
def two(site: Site) -> Two:
    return site.broker(), site.broker()


def leaving(catalogue: ClusterCatalogue, name: str = "t") -> TopicRow:
    row = catalogue.row_of(name)
    assert row is not None
    return row


def use(catalogue: ClusterCatalogue, name: str = "t") -> None:
    catalogue.use(name, catalogue.number(name))


def test_what_one_makes_the_other_sees(two: Two) -> None:
    first, second = two
    first.start_of = lambda topic: 5
    first.create(Topic("t", partitions=3), exist_ok=False)
    assert second.refresh()
    assert second.get("t").partitions == 3
    assert second.journals("t") == first.journals("t") == "t.1"
    assert second.placed()["t"].start == 5
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


def test_a_change_that_is_made_of_what_there_is_loses_none_of_another_broker(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    second.refresh()
    for number in range(3):
        for name, catalogue in zip("ab", two, strict=True):
            catalogue.alter("t", lambda topic: {"labels": {**topic.labels, f"{name}{number}": ""}})  # noqa: B023 - called before it returns
    first.refresh()
    assert sorted(first.get("t").labels) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    with pytest.raises(BadRequest, match="fixed"):
        second.alter("t", lambda topic: {"kind": topic.kind})


def test_what_cannot_change_is_refused(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    with pytest.raises(BadRequest, match="fixed"):
        second.alter("t", {"kind": "fair"})
    with pytest.raises(TopicUnknown):
        second.alter("u", {"lease_ms": 7_000})


def test_topics_of_another_spread_that_another_broker_made_are_known(two: Two) -> None:
    first, second = two
    first.create(Topic("t", spread=2, partitions=2).check(), exist_ok=False)
    with pytest.raises(BadRequest, match="shares dead letters"):
        second.create(Topic("t.dead"), exist_ok=False)
    assert second.has_partition("t", 1)
    assert not second.has_partition("t", 2)


def test_a_topic_that_another_broker_made_is_known_before_any_bell(two: Two) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)
    assert mine.find("t") is None
    assert mine.get("t").name == "t"
    assert mine.refresh()  # who serves by it is told all the same
    assert not mine.refresh()
    with pytest.raises(TopicUnknown):
        mine.get("u")
    other.alter("t", {"lease_ms": 7_000})
    assert (mine.get("t").lease_ms, mine.newest("t").lease_ms) == (Topic("t").lease_ms, 7_000)


def test_who_cannot_read_does_not_say_that_a_topic_is_unknown(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = two
    other.create(Topic("t"), exist_ok=False)

    def fails() -> None:
        raise Unavailable("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(mine._log, "read", fails)
        with pytest.raises(Unavailable):
            mine.get("t")
    assert mine.get("t").name == "t"


def test_others_hear_of_changes_by_one_fact__and_without_it(
    site: Site, two: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = two
    for name in "abc":
        first.create(Topic(name), exist_ok=False)
    [fact] = site.facts.open().list("")
    assert (fact.key, fact.value) == (KEY, b"3")
    first.create(Topic("c"), exist_ok=True)
    assert site.facts.open().list("") == [fact]

    def fails(*given: object, **named: object) -> int:
        raise Unavailable("the coordinator is away")

    monkeypatch.setattr(first._coordinator, "put", fails)
    first.create(Topic("d"), exist_ok=False)
    assert "do not hear of change 4 yet" in caplog.text
    second.refresh()
    assert second.names() == ["a", "b", "c", "d"]


def test_a_topic_has_no_journals_before_it_is_used(site: Site, two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    second.refresh()
    assert (site.stores[0].made(), second.is_used("t")) == ([], False)
    use(second)
    use(second)
    first.refresh()
    assert (site.stores[0].made(), first.is_used("t")) == (["t.1"], True)
    with pytest.raises(TopicUnknown):
        first.use("t", 7)  # of a topic of this name that is gone


def test_a_topic_that_nobody_used_is_deleted_without_anybody(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    second.delete("t")
    assert leaving(second).waits == ()
    with pytest.raises(TopicUnknown):
        use(first)
    second.bury(leaving(second))
    first.create(Topic("t"), exist_ok=False)
    assert first.journals("t") == "t.4"


def test_a_topic_is_deleted_in_steps(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    use(first)
    second.delete("t")
    second.delete("t")  # who did not hear of it may say so again
    for call in (second.get, second.journals, second.number, second.is_used):
        with pytest.raises(TopicUnknown):
            call("t")
    assert second.leaving() == second.changing() == ("t",)
    with pytest.raises(Unavailable, match="is being deleted"):
        first.create(Topic("t"), exist_ok=True)
    with pytest.raises(Unavailable, match="t is not let go of yet"):
        second.check_settled("t")
    first.bury(leaving(second))
    assert first.leaving() == ("t",)  # its owner has not let go of it


def test_a_topic_that_was_let_go_of_is_buried_and_made_again_with_other_journals(
    site: Site, two: Two
) -> None:
    first, second = two
    topic = Topic("t", spread=2, partitions=2).check()
    first.create(topic, exist_ok=False)
    use(first)
    second.delete("t")
    second.check_settled("u")
    row = leaving(second)
    for shard in topic.shards:
        second.bury(row)
        second.refresh()
        assert second.leaving() == ("t",)
        first.let_go(row, [shard])
        first.let_go(row, [shard])
    second.refresh()
    second.bury(row)
    second.bury(row)
    assert (second.leaving(), second.words()) == ((), {"=catalogue"})
    assert site.stores[0].made() == []
    with pytest.raises(TopicUnknown):
        second.delete("t")
    first.create(Topic("t"), exist_ok=False)
    assert first.journals("t") != "t.1"
    first.bury(row)  # somebody is late
    assert first.get("t")


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_ids_go_on_behind_those_of_a_topic_that_was_deleted(
    site: Site, two: Two, *, has_snapshot: bool
) -> None:
    first, second = two
    first.create(Topic("t", partitions=2), exist_ok=False)
    use(first)
    journal = site.stores[0].open("t.1", 1, only_made=True)
    journal.append([to_entry(OpenEpoch(5, 3)), Entry(EntryKind.ENQUEUE, 6, rows=70)], 0, 3)
    if has_snapshot:
        journal.put_snapshot(2, '{"next_sequence": 70, "now_ms": 6, "epoch": 3}', [])
    first.delete("t")
    row = leaving(first)
    second.refresh()
    second.let_go(row, ["t"])
    with pytest.raises(Fenced):  # whoever served it and slept gives no ids any more
        journal.append([Entry(EntryKind.ENQUEUE, 7, rows=1)], 2, 3)
    journal.close()
    again = site.stores[0].open("t.1", 1, only_made=True)
    [*_, (_, epoch, entry)] = again.scan(2)
    assert (epoch, entry.kind, entry.now_ms) == (4, EntryKind.OPEN_EPOCH, 6)
    again.close()
    second.bury(row)
    second.create(Topic("t"), exist_ok=False)
    assert second.ids_from("t") == 70


def test_who_began_an_epoch_asks_whether_the_topic_is_still_there(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    second.refresh()
    number = second.number("t")
    second.check_there("t", number)
    first.delete("t")
    first.bury(leaving(first))
    checks: list[Callable[[], None]] = [lambda: second.check_there("t", number)]
    first.create(Topic("t"), exist_ok=False)
    for check in checks:
        with pytest.raises(TopicUnknown):
            check()


def test_all_of_it_is_told_as_of_now(two: Two) -> None:
    first, second = two
    first.create(Topic("t"), exist_ok=False)
    assert list(second.state().rows) == ["t"]
    use(first)
    assert second.state().rows["t"].is_used


def test_topics_are_gone_over_while_one_is_deleted(two: Two) -> None:
    """By a thread that takes no lock: a row may go between any two of its looks."""
    first, _ = two
    for name in ("a", "b", "c"):
        first.create(Topic(name), exist_ok=False)
    placed = first.placed()
    rows, words = iter(placed.values()), first.words()
    names = [next(rows).topic.name]
    first.delete("c")
    assert placed.get("c") is not None  # it is let go of by who has its slot
    first.bury(leaving(first, "c"))
    names += [row.topic.name for row in rows]
    assert sorted(names) == ["a", "b", "c"]
    assert len(words) == 4
    assert (sorted(placed), len(placed), placed.get("c")) == (["a", "b"], 2, None)
