"""Covers: partitions that are read beside their worker, and what becomes of one that is given up.

That nothing is lost when brokers take over from each other: tests/cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.opening import JournalDoor, read_again, read_together
from dejaqueue.errors import TopicUnknown, Unavailable
from dejaqueue.journal.interface import EntryKind, Journal
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.cluster.brokers import Cluster
from tests.patience import until
from tests.unit.broker.cores import journals

SECONDS_MAX = 20


class Held:
    """Journals of one partition are not opened before they may be."""

    def __init__(self, open_journal: object, partition: int) -> None:
        assert callable(open_journal)
        self._open, self._partition = open_journal, partition
        self.asked, self.may = threading.Event(), threading.Event()
        self.opened: list[Journal] = []

    def __call__(self, topic: str, partition: int, *, only_made: bool = False) -> Journal:
        if partition == self._partition:
            self.asked.set()
            assert self.may.wait(SECONDS_MAX)
        journal: Journal = self._open(topic, partition, only_made=only_made)
        if partition == self._partition:
            self.opened.append(journal)
        return journal


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_others_of_its_worker_are_served_while_a_partition_is_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster.start("a")
    held = Held(broker.store.open, 0)
    monkeypatch.setattr(broker.store, "open", held)
    try:
        broker.create_topic(Topic("t", partitions=3))
        broker.take("t")
        assert held.asked.wait(SECONDS_MAX)
        assert broker.worker_of("t", 0) is broker.worker_of("t", 2)
        runtime = broker.runtime("t")
        assert runtime.look(2, lambda core: core.position > 0).result(SECONDS_MAX)
        waiting = runtime.look(0, lambda core: core.position > 0)
        assert not waiting.done()
    finally:
        held.may.set()
    assert waiting.result(SECONDS_MAX)  # it waited; it was not refused


def test_what_was_opened_for_a_topic_that_is_given_up_is_closed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster.start("a")
    held = Held(broker.store.open, 0)
    monkeypatch.setattr(broker.store, "open", held)
    try:
        broker.create_topic(Topic("t"))
        broker.take("t")
        assert held.asked.wait(SECONDS_MAX)
        monkeypatch.setattr(broker, "take", lambda name: None)  # its node would, at once
        broker.give("t", drain=False)
    finally:
        held.may.set()
    until(lambda: bool(held.opened), "it was opened all the same")
    until(lambda: _is_closed(held.opened[0]), "it is closed")


def test_a_topic_that_is_being_read_can_be_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster.start("a")
    held = Held(broker.store.open, 0)
    monkeypatch.setattr(broker.store, "open", held)
    broker.create_topic(Topic("t", partitions=2))
    broker.take("t")
    assert held.asked.wait(SECONDS_MAX)
    opens = threading.Timer(0.2, held.may.set)
    opens.start()
    broker.delete_topic("t")  # its journals are dropped, which nobody may have open then
    opens.join()
    assert [topic.name for topic in broker.topics()] == []
    assert _is_closed(held.opened[0])


def test_whether_it_is_there_is_asked_behind_the_epoch__before_it_is_served() -> None:
    open_journal, core = journals(), PartitionCore(lambda: Topic("t"), 0, VirtualClock())
    before, opened, seen = open_journal(), [], []
    first = before.tail
    before.close()

    def open_one() -> Journal:
        opened.append(open_journal())
        return opened[-1]

    def check_there() -> None:
        entries = [entry for _, _, entry in opened[-1].scan(first)]
        seen.append([entry.kind for entry in entries])

    door = JournalDoor(open_one, check_there=check_there)
    found = read_again(core, door)
    assert seen == [[EntryKind.OPEN_EPOCH]]  # who served it before is kept out by then
    assert found.views.unnamed.epoch == found.epoch == 1
    found.journal.close()


@pytest.mark.parametrize("error", [TopicUnknown("t"), Unavailable("away", 100)])
def test_of_a_topic_that_is_not_there_the_journal_is_let_go_of(error: Exception) -> None:
    open_journal, core = journals(), PartitionCore(lambda: Topic("t"), 0, VirtualClock())
    opened: list[Journal] = []

    def open_one() -> Journal:
        opened.append(open_journal())
        return opened[-1]

    def check_there() -> None:
        raise error

    with pytest.raises(type(error)):
        read_again(core, JournalDoor(open_one, check_there=check_there))
    assert _is_closed(opened[0])
    door = JournalDoor(open_one)
    found = read_again(core, door)
    assert found.epoch == 2  # the one that was begun for nobody keeps others out all the same
    found.journal.close()


def _is_closed(journal: Journal) -> bool:
    try:
        journal.read(pa.array([], pa.int64()).to_numpy())
    except Exception:  # noqa: BLE001 - what a closed journal raises is the conformance suite's
        return True
    return False


def test_partitions_that_are_read_together_share_a_sync__and_each_has_its_own_outcome() -> None:
    store = MemoryStore(shards=1)
    for name in ("a", "b"):
        store.make(name)
    opened: list[Journal] = []

    def door(name: str, error: Exception | None = None) -> tuple[PartitionCore, JournalDoor]:
        def open_one() -> Journal:
            opened.append(store.open(name, 0))
            return opened[-1]

        def check_there() -> None:
            if error is not None:
                raise error

        core = PartitionCore(lambda: Topic(name), 0, VirtualClock())
        return core, JournalDoor(open_one, check_there=check_there)

    first, gone, twice = read_together([door("a"), door("b", TopicUnknown("b")), door("a")])
    found = first.result()
    assert (found.tail, found.epoch, found.views.unnamed.epoch) == (1, 1, 1)
    assert isinstance(gone.exception(), TopicUnknown)
    assert isinstance(twice.exception(), Unavailable)  # it is open already
    log = opened[0].log
    assert log is not None
    assert log is opened[1].log
    heads = [head for journal in opened[:1] for _, _, head in journal.scan(0)]
    assert [entry.kind for entry in heads] == [EntryKind.OPEN_EPOCH]
    store.open("b", 0).close()  # its journal was let go of
    found.journal.close()
