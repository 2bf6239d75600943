"""Covers: topics that are read before they are served here: taken once, let go of, not in the way.

That a state read in two goes is right: tests/unit/broker/shard/test_reading.py. That a hand-over
waits for it: tests/unit/cluster/test_next_owners.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from dejaqueue.broker.topic import reading_ahead
from dejaqueue.broker.topic.reading_ahead import IDLE_SECONDS_MAX, ReadingsAhead
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.errors import Unavailable
from dejaqueue.journal.interface import Entry, EntryKind
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.topic_names import shard_name
from tests.cluster.brokers import Cluster, send
from tests.patience import PATIENCE_SECONDS, until

TOPIC = Topic("t", partitions=3)


def epoch(number: int) -> Entry:
    """An entry that any partition may have."""
    return Entry(EntryKind.OPEN_EPOCH, 1_000, (number, 0, 0, 0))


class Heir:
    """A broker's readings of a topic that another store's owner appends to."""

    def __init__(self) -> None:
        records = MemoryRecordStore()
        self.owners, self.store = RecordJournalStore(records), RecordJournalStore(records)
        self.owners.make("t.1")
        self.journals = [self.owners.open("t.1", number) for number in range(3)]
        for journal in self.journals:
            journal.append([epoch(1)], 0, 1)
        self.clock = VirtualClock()
        self.served: set[str] = set()
        self.ahead = ReadingsAhead(Threads(), self.clock, self.served.__contains__)

    def ask(self, topic: Topic = TOPIC, name: str = "t") -> bool:
        return self.ahead.ask(name, topic, "t.1", self.store)

    def read(self) -> None:
        until(self.ask, "it is read")

    def is_free(self) -> bool:
        """Whether nothing of it is open here."""
        return not self.store._open

    def close(self) -> None:
        self.ahead.close()
        self.owners.close()
        self.store.close()


@pytest.fixture
def heir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heir]:
    monkeypatch.setattr(reading_ahead, "READERS", 2)
    made = Heir()
    yield made
    made.close()


def test_each_partition_is_taken_once(heir: Heir) -> None:
    heir.read()
    for number in range(3):
        reader = heir.ahead.take("t", "t.1", number)
        assert reader is not None
        assert reader.tail == 1
        assert heir.ahead.take("t", "t.1", number) is None
        reader.journal.close()
    assert not heir.ahead.has("t")
    assert heir.is_free()


def test_all_are_read_on_when_the_last_was_read(
    heir: Heir, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, opened = threading.Event(), threading.Event()
    inner = heir.store.open_ahead

    def open_ahead(topic: str, partition: int) -> RecordJournal:
        journal = inner(topic, partition)
        if partition == 2:
            opened.set()
            assert held.wait(PATIENCE_SECONDS)
        return journal

    monkeypatch.setattr(heir.store, "open_ahead", open_ahead)
    assert not heir.ask()
    assert opened.wait(PATIENCE_SECONDS)
    until(lambda: heir.ahead._topics["t"].readings[0].is_done, "the first one is read")
    heir.journals[0].append([epoch(2)], 1, 1)
    assert not heir.ask()
    held.set()
    heir.read()
    reader = heir.ahead.take("t", "t.1", 0)
    assert reader is not None
    assert reader.tail == 2
    reader.journal.close()


def test_a_shard_is_read_and_not_the_others(heir: Heir) -> None:
    name = shard_name("t", 1, 3)
    until(lambda: heir.ask(Topic("t", partitions=3, spread=3), name), "it is read")
    assert heir.ahead.take(name, "t.1", 0) is None
    reader = heir.ahead.take(name, "t.1", 1)
    assert reader is not None
    reader.journal.close()
    assert heir.is_free()


def test_what_is_being_read_is_waited_for(heir: Heir, monkeypatch: pytest.MonkeyPatch) -> None:
    held, reading = threading.Event(), threading.Event()

    def held_up(inner: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            reading.set()
            assert held.wait(PATIENCE_SECONDS)
            return inner(*arguments, **named)

        return call

    monkeypatch.setattr(reading_ahead, "_read", held_up(reading_ahead._read))
    assert not heir.ask()
    assert reading.wait(PATIENCE_SECONDS)
    assert heir.ahead.take("t", "t.1", 2) is None  # two at once: it was not begun
    timer = threading.Timer(0.1, held.set)
    timer.start()
    reader = heir.ahead.take("t", "t.1", 0)
    assert reader is not None
    reader.journal.close()
    timer.join()


def test_what_is_let_go_of_is_closed__also_what_is_being_read_on(
    heir: Heir, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, following = threading.Event(), threading.Event()
    inner = RecordJournal.follow

    def follow(self: RecordJournal) -> int:
        following.set()
        assert held.wait(PATIENCE_SECONDS)
        return inner(self)

    monkeypatch.setattr(RecordJournal, "follow", follow)

    def is_following() -> bool:
        return heir.ask() or following.is_set()

    until(is_following, "it is read on")
    heir.ahead.let_go("t")  # two are being read on, the third waits for a thread
    assert heir.ahead.has("t")  # nobody drops its journals yet
    held.set()
    until(lambda: not heir.ahead.has("t"), "it is closed")
    assert heir.is_free()


def test_what_nobody_asks_about_is_let_go_of(heir: Heir) -> None:
    heir.read()
    heir.clock.advance(ms=int(IDLE_SECONDS_MAX * 1_000))
    assert heir.ask()
    heir.clock.advance(ms=int(IDLE_SECONDS_MAX * 1_000))
    heir.ahead.let_go_idle()
    assert heir.ahead.has("t")
    heir.clock.advance(ms=1)
    heir.ahead.let_go_idle()
    assert not heir.ahead.has("t")
    assert heir.is_free()


def test_a_topic_that_is_gone_is_let_go_of(heir: Heir) -> None:
    heir.read()
    heir.ahead.let_go_unless(lambda topic: topic == "t")
    assert heir.ahead.has("t")
    heir.ahead.let_go_unless(lambda topic: topic != "t")
    assert heir.is_free()


def test_of_another_topic_with_its_name_nothing_is_taken(heir: Heir) -> None:
    heir.read()
    assert heir.ahead.take("t", "t.2", 0) is None
    heir.owners.make("t.2")
    assert not heir.ahead.ask("t", TOPIC, "t.2", heir.store)
    until(lambda: heir.ahead.ask("t", TOPIC, "t.2", heir.store), "the new one is read")
    assert {name for name, _ in heir.store._open} == {"t.2"}


def test_what_is_served_here_is_not_read(heir: Heir) -> None:
    heir.served.add("t")
    assert heir.ask()
    assert not heir.ahead.has("t")


def test_what_cannot_be_read_is_not_waited_for(heir: Heir, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(topic: str, partition: int) -> RecordJournal:
        raise Unavailable("the server does not answer", 100)

    monkeypatch.setattr(heir.store, "open_ahead", away)
    heir.read()
    assert heir.ahead.take("t", "t.1", 0) is None


def test_where_journals_cannot_be_read_ahead_nothing_is(heir: Heir) -> None:
    assert heir.ahead.ask("t", TOPIC, "t.1", MemoryStore())
    assert not heir.ahead.has("t")


def test_who_is_closed_reads_nothing(heir: Heir) -> None:
    heir.read()
    heir.ahead.close()
    assert heir.is_free()
    assert heir.ask()


def test_of_a_topic_with_a_history_the_snapshot_is_read_and_no_more(heir: Heir) -> None:
    until(lambda: heir.ask(Topic("t", partitions=3, history=True)), "it is read")
    reader = heir.ahead.take("t", "t.1", 0)
    assert reader is not None
    assert (reader.tail, reader.journal.tail) == (0, 1)
    reader.journal.close()


def test_a_broker_serves_what_came_after_it_had_read_ahead() -> None:
    with Cluster() as cluster:
        owner = cluster.start("a")
        owner.create_topic(Topic("t"))
        send(owner, "t", ["before"])
        other = cluster.start("b")
        cluster.dealt()
        owner = cluster.owner("t")
        heir = next(one for one in (cluster.brokers["a"], other) if one is not owner)
        until(lambda: heir.read_ahead("t"), "it is read ahead")
        send(owner, "t", ["since"])
        name = next(name for name, broker in cluster.brokers.items() if broker is owner)
        cluster.stop(name)
        assert cluster.payloads("t") == ["before", "since"]
        core = heir.runtime("t").look(0, lambda core: core.position).result(PATIENCE_SECONDS)
        assert core > 2
        assert not heir.ahead.has("t")
