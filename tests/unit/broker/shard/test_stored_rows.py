"""Rows that only a server has: whoever needs them waits, and nobody else of the worker does.

Not here: appends that hang (tests/integration/test_hanging_journal.py), the same among faults
(tests/simulation/cluster/hanging.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls.at_once import Name, find, read_headers
from dejaqueue.broker.calls.browse import parse_selection
from dejaqueue.broker.calls.peek import named, parse_names
from dejaqueue.broker.shard import maintenance
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import MessageState, RowStatus, Topic
from dejaqueue.settings import BrokerSettings, DispatchSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS

HANGS, OTHER = "hangs", "other"
LATER_MS = 3_600_000


class SlowRecords(MemoryRecords):
    """The records of a server that does not answer who reads some of them, for a while."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()
        self.fails = False

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        self.asked.set()
        assert self.answers.wait(PATIENCE_SECONDS)
        if self.fails:
            raise Unavailable("the server is away")
        return super().read(first, end)


class SlowStore(MemoryRecordStore):
    def open(self, topic: str, partition: int) -> MemoryRecords:
        return self.logs.setdefault((topic, partition), SlowRecords(topic))


class Site:
    """A broker with one worker, two topics, and a message of either that only the server has."""

    def __init__(self, records: SlowStore) -> None:
        self._records = records
        self.clock = VirtualClock()
        self.broker = self._start()
        for name in (HANGS, OTHER):
            self.broker.create_topic(Topic(name))
        self.send(HANGS, "a").result(PATIENCE_SECONDS)
        self.broker.stop()
        self.broker = self._start()
        for name in (HANGS, OTHER):
            self.look(name)
        found = records.logs[self.topic.journals, 0]
        assert isinstance(found, SlowRecords)
        self.server = found

    def _start(self) -> Broker:
        settings = BrokerSettings(
            journal=JournalSettings(url="memory:"), dispatch=DispatchSettings(workers=1)
        )
        broker = Broker(settings, self.clock, RecordJournalStore(self._records))
        broker.start()
        return broker

    @property
    def topic(self) -> ServedTopic:
        return self.broker.runtime(HANGS)

    def look(self, name: str) -> int:
        """A sign of life."""
        topic = self.broker.runtime(name)
        return topic.look(0, lambda core: core.position).result(PATIENCE_SECONDS)

    def write(self, topic: str, op: str, columns: dict[str, Any]) -> Future[Reply]:
        answer: Future[Reply] = Future()
        stream = WriteStream(topic, op).check()
        self.broker.open_write(stream).submit(1, pa.record_batch(columns), answer.set_result)
        return answer

    def send(self, topic: str, key: str) -> Future[Reply]:
        due_ms = self.clock.now_ms() + LATER_MS
        payload = pa.array([b"x"])
        return self.write(topic, "enqueue", {"payload": payload, "due": [due_ms], "key": [key]})

    def hang(self) -> None:
        self.server.asked.clear()
        self.server.answers.clear()


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as cleanup:
        site = Site(SlowStore())
        cleanup.callback(lambda: site.broker.stop())
        cleanup.callback(lambda: site.server.answers.set())
        yield site


def statuses(reply: Reply) -> list[int]:
    assert reply.error is None
    return [] if reply.statuses is None else list(reply.statuses)


def send_it_again(site: Site) -> Callable[[], Any]:
    answer = site.send(HANGS, "a")
    return lambda: statuses(answer.result(PATIENCE_SECONDS)) == [RowStatus.DUPLICATE]


def move_it_by_its_key(site: Site) -> Callable[[], Any]:
    due_ms = site.clock.now_ms() + 2 * LATER_MS
    answer = site.write(HANGS, "move", {"key": ["a"], "due": [due_ms]})
    return lambda: set(statuses(answer.result(PATIENCE_SECONDS))) <= {RowStatus.OK}


def look_for_its_key(site: Site) -> Callable[[], Any]:
    _, keys = parse_names(None, ["a"])
    selection = parse_selection({}, site.clock.now_ms(), (MessageState.SCHEDULED,))
    ticket: Any = SimpleNamespace(ids=None, keys=keys, selection=selection)
    answer = site.topic.look(0, lambda core: named(site.topic, core, ticket))
    return lambda: answer.result(PATIENCE_SECONDS).size == 1


def change_it_and_read_its_headers(site: Site) -> Callable[[], Any]:
    def change(core: PartitionCore) -> dict[str, str]:
        sequence = find(core, Name(0, ("a",)))
        assert sequence is not None
        return read_headers(core, sequence)

    answer = site.topic.change(0, change)
    return lambda: answer.result(PATIENCE_SECONDS) == {}


@pytest.mark.parametrize(
    "ask", [send_it_again, move_it_by_its_key, look_for_its_key, change_it_and_read_its_headers]
)
def test_a_journal_that_hangs_holds_its_own_partition_alone(
    site: Site, ask: Callable[[Site], Callable[[], Any]]
) -> None:
    site.hang()
    is_right = ask(site)
    assert site.server.asked.wait(PATIENCE_SECONDS)
    later = site.send(HANGS, "b")
    site.look(OTHER)
    assert not later.done(), "what came later was answered before"
    site.server.answers.set()
    assert is_right()
    assert later.result(PATIENCE_SECONDS).error is None
    site.look(HANGS)


def test_a_server_that_is_away_refuses_who_needs_it__and_nobody_else(site: Site) -> None:
    site.hang()
    again, new = site.send(HANGS, "a"), site.send(HANGS, "b")
    assert site.server.asked.wait(PATIENCE_SECONDS)
    site.server.fails = True
    site.server.answers.set()
    assert isinstance(again.result(PATIENCE_SECONDS).error, Unavailable)
    new.result(PATIENCE_SECONDS)
    site.server.fails = False
    assert statuses(site.send(HANGS, "a").result(PATIENCE_SECONDS)) == [RowStatus.DUPLICATE]


def test_a_partition_that_is_closed_waits_beside_its_worker(site: Site) -> None:
    site.hang()
    again = site.send(HANGS, "a")
    assert site.server.asked.wait(PATIENCE_SECONDS)
    threading.Timer(0.05, site.server.answers.set).start()
    site.broker.stop()
    reply = again.result(PATIENCE_SECONDS)
    assert isinstance(reply.error, Unavailable) or statuses(reply) == [RowStatus.DUPLICATE]


def test_rows_are_copied_forward_without_holding_the_worker(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_it(self: RecordJournal) -> Any:
        return np.array([[1, self.tail]], dtype=np.int64)

    monkeypatch.setattr(maintenance, "COMPACT_ENTRIES", 1)
    monkeypatch.setattr(RecordJournal, "sparse", all_of_it)
    site.hang()
    sent = site.send(HANGS, "b")
    assert site.server.asked.wait(PATIENCE_SECONDS)
    assert statuses(sent.result(PATIENCE_SECONDS)) == []
    site.look(OTHER)
    site.look(HANGS)
    site.server.answers.set()
    _, found = site.broker.read("peek", {"topic": HANGS})
    [page] = found
    assert sorted(page["key"].to_pylist()) == ["a", "b"]
    keeper = site.topic.partitions[0].maintenance
    while not keeper.copied_rows:
        site.look(HANGS)
