"""Topics of a broker that is alone are deleted in two steps; what a crash left is finished.

In a cluster: tests/cluster/test_made_again.py.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import JournalDamaged, TopicUnknown, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.cluster.brokers import payloads, send
from tests.patience import PATIENCE_SECONDS, until


class Places:
    """Where a broker that is alone keeps its journals, life after life."""

    def __init__(self, kind: str, root: Path) -> None:
        self._kind, self._root = kind, root
        self._records = MemoryRecordStore()

    def open(self) -> JournalStore:
        if self._kind == "segments":
            return SegmentStore(self._root)
        return RecordJournalStore(self._records)


@pytest.fixture(params=["segments", "records"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    return Places(request.param, tmp_path)


def started(places: Places) -> Broker:
    broker = Broker(BrokerSettings(), store=places.open())
    broker.start()
    return broker


def _cannot(topic: str) -> None:
    raise Unavailable("the process dies here", 100)


def test_what_a_crash_left_of_a_deleted_topic_is_dropped_at_the_start(places: Places) -> None:
    broker = started(places)
    broker.create_topic(Topic("t"))
    send(broker, "t", ["old"])
    broker.store.drop = _cannot  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        broker.delete_topic("t")
    with pytest.raises(TopicUnknown):
        broker.topic("t")
    broker.stop()
    broker = started(places)
    with pytest.raises((JournalDamaged, Unavailable)):
        broker.store.open("t", 0, only_made=True)
    broker.create_topic(Topic("t"))
    assert payloads(broker, "t") == []
    broker.stop()
    broker = started(places)
    assert payloads(broker, "t") == []
    broker.stop()


def test_a_topic_whose_deletion_failed_is_made_again_without_its_messages(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = started(places)
    broker.create_topic(Topic("t"))
    send(broker, "t", ["old"])
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "drop", _cannot)
        with pytest.raises(Unavailable):
            broker.delete_topic("t")
        with pytest.raises(Unavailable):
            broker.create_topic(Topic("t"))
    broker.create_topic(Topic("t"))
    assert payloads(broker, "t") == []
    broker.stop()


def test_journals_that_were_not_made_are_not_opened(places: Places) -> None:
    store = places.open()
    with pytest.raises((JournalDamaged, Unavailable)):
        store.open("t", 0, only_made=True)
    store.make("t")
    store.make("t")
    store.open("t", 0, only_made=True).close()
    store.drop("t")
    store.drop("t")
    with pytest.raises((JournalDamaged, Unavailable)):
        store.open("t", 0, only_made=True)
    store.close()


def test_a_first_append_that_comes_after_a_drop_is_refused() -> None:
    records = MemoryRecordStore()
    owner, dropper = RecordJournalStore(records), RecordJournalStore(records)
    owner.make("t.1")
    journal = owner.open("t.1", 0, only_made=True)
    dropper.drop("t.1")
    # As on a server where a log comes into being with its first append.
    journal._log = journal._writer._log = records.open("t.1", 0)
    from dejaqueue.broker.shard.entries import to_entry
    from dejaqueue.engine.commands import OpenEpoch

    with pytest.raises(Unavailable, match="dropped, or never made"):
        journal.append([to_entry(OpenEpoch(1, 1))], 0, 1)
    assert not records.logs
    journal.close()


def test_copies_of_what_others_have_dropped_go(tmp_path: Path) -> None:
    records = MemoryRecordStore()
    store = RecordJournalStore(records, mirror=tmp_path)
    for topic in ("open", "known", "gone"):
        store.make(topic)
        journal = store.open(topic, 0, only_made=True)
        if topic != "open":
            journal.close()
        (tmp_path / "topics" / topic).mkdir(parents=True, exist_ok=True)
    store.tidy({"known"})
    assert sorted(path.name for path in (tmp_path / "topics").iterdir()) == ["known", "open"]
    store.close()


def _untold(broker: Broker) -> str:
    """A committed transaction of which the other topic could not be told; its name."""
    name: str = broker.transactions.begin("home", 60_000)["transaction"]
    for topic in ("home", "other"):
        batch = pa.record_batch({"payload": pa.array([b"half"])})
        future: Future[Reply] = Future()
        broker.open_write(WriteStream(topic, transaction=name)).submit(1, batch, future.set_result)
        assert future.result(PATIENCE_SECONDS).error is None
    coordinator = broker.transactions.coordinator
    coordinator.have_done = lambda *asked: asked[-1](Unavailable("away"))  # type: ignore[method-assign]
    committed = broker.transactions.decide(name, ["home/0", "other/0"], commit=True)
    with pytest.raises(Unavailable, match="is committed, but"):
        committed.result(PATIENCE_SECONDS)
    return name


@pytest.mark.parametrize("step", ["closed", "told", "dropped"])
def test_what_was_committed_in_a_topic_outlives_it__whatever_step_a_crash_comes_after(
    places: Places, step: str
) -> None:
    broker = started(places)
    for topic in ("home", "other"):
        broker.create_topic(Topic(topic))
    name = _untold(broker)
    assert broker.alone is not None
    if step == "closed":
        broker.alone.closed = lambda name, *_: _cannot(name)  # type: ignore[method-assign]
    elif step == "dropped":
        del broker.transactions.coordinator.have_done
        broker.store.drop = _cannot  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        broker.delete_topic("home")
    if step == "told":
        with pytest.raises(Unavailable, match="not everybody who takes part in its transactions"):
            broker.create_topic(Topic("home"))
        with pytest.raises(Unavailable, match="is committed, but"):
            broker.transactions.decide(name, [], commit=True).result(PATIENCE_SECONDS)
    broker.stop()
    broker = started(places)
    until(lambda: payloads(broker, "other") == ["half"], "what was committed is there")
    until(lambda: broker.alone is not None and not broker.alone.leaving(), "home is gone")
    broker.create_topic(Topic("home"))
    assert payloads(broker, "home") == []
    broker.stop()


def test_a_deletion_is_asked_for_again_until_who_takes_part_was_told(places: Places) -> None:
    broker = started(places)
    for topic in ("home", "other"):
        broker.create_topic(Topic(topic))
    _untold(broker)
    with pytest.raises(Unavailable):
        broker.delete_topic("home")
    assert payloads(broker, "other") == []
    del broker.transactions.coordinator.have_done
    broker.delete_topic("home")
    assert payloads(broker, "other") == ["half"]
    assert broker.alone is not None
    assert broker.alone.leaving() == ()
    broker.stop()


def test_who_takes_part_and_is_deleted_need_not_be_told(places: Places) -> None:
    broker = started(places)
    for topic in ("home", "other"):
        broker.create_topic(Topic(topic))
    _untold(broker)
    del broker.transactions.coordinator.have_done
    broker.delete_topic("other")
    broker.delete_topic("home")
    assert broker.topics() == []
    broker.stop()
