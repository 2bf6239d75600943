"""Covers: a state that is read in two goes is the one that one go gives, or it is read anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.broker.shard.opening import JournalDoor, Opened, read_again
from dejaqueue.broker.shard.reading import StateReader
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.view_snapshots import plan_views_snapshot
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.interface import Entry, Journal, SnapshotFile
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.reading import CheckedRecords
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.unit.broker.cores import Served

TOPIC = Topic("t")


class Heard(Listener):
    """What it is told, by position."""

    def __init__(self) -> None:
        self.begun = -1
        self.entries: list[int] = []

    def reading(self, topic: Topic, engine: Engine, position: int) -> None:
        self.begun = position

    def replayed(self, position: int, entry: Entry, effects: Effects) -> None:
        self.entries.append(position)


class Brokers:
    """Two stores of the same journals: the owner's, and that of whoever comes next."""

    def __init__(self, topic: Topic = TOPIC) -> None:
        records = MemoryRecordStore()
        self.topic = topic
        self.owners, self.heirs = RecordJournalStore(records), RecordJournalStore(records)
        self.owners.make("t")
        self.owner = Served(topic, lambda: self.owners.open("t", 0, only_made=True))
        self.opened = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self.owner.send([b"x"], dues_ms=[10**13])

    def snapshot(self) -> None:
        core = self.owner.core
        meta, files = plan_views_snapshot(core.views)
        stored = [SnapshotFile(name, content) for name, content in files]
        core.journal.put_snapshot(core.position, meta, stored)

    def read_ahead(self, *, replays: bool = True) -> StateReader:
        reader = StateReader(0, self.heirs.open_ahead("t", 0))
        if replays:
            reader.read_on(Listener())
        return reader

    def go(self) -> int:
        """The owner lets go; the state that it had."""
        state = self.owner.core.views.state_hash()
        self.owner.core.journal.close()
        return state

    def serve(self, ahead: StateReader | None, listener: Listener | None = None) -> Opened:
        """The next owner begins, with what it read ahead."""
        core = PartitionCore(lambda: self.topic, 0, VirtualClock())
        door = JournalDoor(self._open, listener=listener)
        door.take_ahead = lambda: ahead
        return read_again(core, door)

    def _open(self) -> Journal:
        self.opened += 1
        return self.heirs.open("t", 0, only_made=True)

    def close(self) -> None:
        self.owners.close()
        self.heirs.close()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    made = Brokers()
    yield made
    made.close()


def before_its_epoch(opened: Opened) -> int:
    """The state of what was opened, read up to the entry before its epoch."""
    views = PartitionViews(Engine(0))
    for position, _, entry in opened.journal.scan(0):
        if position < opened.tail:
            views.apply(entries.to_command(entry, position))
    return views.state_hash()


def test_what_came_since_it_was_read_ahead_is_read(brokers: Brokers) -> None:
    brokers.send(5)
    ahead = brokers.read_ahead()
    brokers.send(3)
    last = brokers.owner.core.position
    state = brokers.go()
    heard = Heard()
    opened = brokers.serve(ahead, heard)
    assert brokers.opened == 0
    assert (opened.ahead, opened.tail) == (last - 3, last + 1)
    # What the owner wrote after it was read ahead, and the epoch.
    assert (heard.begun, heard.entries) == (last - 3, [last - 2, last - 1, last, last + 1])
    assert before_its_epoch(opened) == state
    assert opened.views.unnamed.backlog(0)[0] == 8
    opened.journal.close()


def test_what_was_followed_is_not_told_twice(brokers: Brokers) -> None:
    brokers.send(2)
    ahead = brokers.read_ahead()
    brokers.send(2)
    ahead.follow()
    ahead.read_on(Listener())
    brokers.send(1)
    brokers.go()
    opened = brokers.serve(ahead)
    assert opened.views.unnamed.backlog(0)[0] == 5
    opened.journal.close()


def test_it_is_read_anew__if_there_is_another_snapshot(brokers: Brokers) -> None:
    brokers.send(5)
    ahead = brokers.read_ahead()
    brokers.send(3)
    brokers.snapshot()
    brokers.send(1)
    brokers.go()
    opened = brokers.serve(ahead)
    assert (brokers.opened, opened.ahead) == (1, 0)
    assert opened.views.unnamed.backlog(0)[0] == 9
    with pytest.raises(Unavailable):
        ahead.journal.append([], 0, 1)  # it was closed
    opened.journal.close()


def test_it_is_read_anew__if_what_came_since_is_gone(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.send(5)
    ahead = brokers.read_ahead()
    brokers.send(3)
    log = brokers.owner.core.journal

    def dropped(self: CheckedRecords, *_: object, **__: object) -> Iterator[object]:
        raise JournalDamaged("record 7: is missing")

    brokers.go()
    assert log is not ahead.journal
    with monkeypatch.context() as patch:
        patch.setattr(CheckedRecords, "appends", dropped)
        assert not ahead.take_over()
    monkeypatch.setattr(ahead, "take_over", lambda: False)
    opened = brokers.serve(ahead)
    assert (brokers.opened, opened.views.unnamed.backlog(0)[0]) == (1, 8)
    opened.journal.close()


def test_a_server_that_is_away_fails_the_opening__and_closes_what_was_read(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.send(1)
    ahead = brokers.read_ahead()
    brokers.go()

    def away() -> bool:
        raise Unavailable("the server does not answer", 100)

    monkeypatch.setattr(ahead, "take_over", away)
    with pytest.raises(Unavailable):
        brokers.serve(ahead)
    opened = brokers.serve(None)  # nothing has it open
    assert opened.views.unnamed.backlog(0)[0] == 1
    opened.journal.close()


def test_who_records_a_history_hears_of_all_behind_the_snapshot() -> None:
    brokers, heard = Brokers(Topic("t", history=True)), Heard()
    brokers.send(2)
    brokers.snapshot()
    covered = brokers.owner.core.position
    brokers.send(2)
    ahead = brokers.read_ahead()  # it had none when it was read
    brokers.send(1)
    last = brokers.owner.core.position
    brokers.go()
    opened = brokers.serve(ahead, heard)
    assert brokers.opened == 0
    assert heard.begun == covered
    assert heard.entries == list(range(covered + 1, last + 2))
    assert opened.views.unnamed.backlog(0)[0] == 5
    opened.journal.close()
    brokers.close()
