"""Covers: the journal of one partition hangs, on a server; the others of its worker go on.

Not covered: a disk that hangs: all partitions are on it. That nothing is lost: tests/conformance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls import redrive
from dejaqueue.broker.shard import maintenance
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic import handing_over, served_topic
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import RowStatus, Topic
from dejaqueue.settings import BrokerSettings, DispatchSettings, JournalSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS

RECORD_BYTES_MAX = 1 << 20


class Server(MemoryRecordStore):
    """A server of which one log can hang."""

    def __init__(self) -> None:
        super().__init__(RECORD_BYTES_MAX)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.has_hung = threading.Event()

    def open(self, topic: str, partition: int) -> MemoryRecords:
        log = super().open(topic, partition)
        if topic == "sick":
            append, last = log.append, log.last

            def slow_append(after: int, records: Sequence[Sequence[Bytes]]) -> None:
                self._pass()
                append(after, records)

            def slow_last() -> int:
                self._pass()
                return last()

            log.append, log.last = slow_append, slow_last  # type: ignore[method-assign]
        return log

    def _pass(self) -> None:
        if not self.goes_on.is_set():
            self.has_hung.set()
        assert self.goes_on.wait(3 * PATIENCE_SECONDS)


class Site:
    """A broker with one worker, and topics on a server."""

    def __init__(self) -> None:
        self.server = Server()
        settings = BrokerSettings(
            journal=JournalSettings(url="memory:", snapshot_entries=20),
            dispatch=DispatchSettings(workers=1),
        )
        self.broker = Broker(settings, store=RecordJournalStore(self.server))
        self.broker.start()

    def send(self, topic: str, count: int = 1, **columns: pa.Array) -> Future[Reply]:
        future: Future[Reply] = Future()
        writer = self.broker.open_write(WriteStream(topic, "enqueue").check())
        batch = pa.record_batch({"payload": pa.array([b"x"] * count, pa.binary())} | columns)
        writer.submit(1, batch, future.set_result)
        return future

    def sent(self, topic: str) -> None:
        assert self.send(topic).result(PATIENCE_SECONDS).error is None


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    for name in ("sick", "well"):
        site.broker.create_topic(Topic(name))
    yield site
    site.server.goes_on.set()
    site.broker.stop()


def looks_of(site: Site, topic: str) -> Future[int]:
    return site.broker.runtime(topic).look(0, lambda place: place.engine.next_sequence)


Ask = Callable[[Site], Future[Reply] | Future[int]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda site: site.send("sick"),
        lambda site: looks_of(site, "sick"),
        lambda site: [site.send("sick") for _ in range(50)][-1],
        lambda site: [site.send("sick"), looks_of(site, "sick"), site.send("sick")][-1],
    ],
    ids=["a send", "a look", "many sends", "a look between sends"],
)
def test_a_journal_that_hangs_holds_its_own_partition_alone(ask: Ask, site: Site) -> None:
    for name in ("sick", "well"):
        site.sent(name)
    site.server.goes_on.clear()
    held = site.send("sick")
    assert site.server.has_hung.wait(PATIENCE_SECONDS)
    asked = ask(site)
    for _ in range(30):
        site.sent("well")
        assert looks_of(site, "well").result(PATIENCE_SECONDS)
    assert not held.done()
    assert not asked.done()
    site.server.goes_on.set()
    assert held.result(PATIENCE_SECONDS).error is None
    found = asked.result(PATIENCE_SECONDS)
    assert not isinstance(found, Reply) or found.error is None
    assert looks_of(site, "sick").result(PATIENCE_SECONDS) >= 2


def test_a_journal_that_hangs_while_it_is_opened_holds_its_own_partition_alone(
    site: Site,
) -> None:
    site.sent("well")
    site.server.goes_on.clear()
    held = site.send("sick")
    assert site.server.has_hung.wait(PATIENCE_SECONDS)
    for _ in range(30):
        site.sent("well")
    assert not held.done()
    site.server.goes_on.set()
    assert held.result(PATIENCE_SECONDS).error is None


def discards(site: Site) -> None:
    ids = np.zeros(1, np.int64)
    threading.Thread(target=redrive._apply, args=(site.broker, "sick", ids, None)).start()


def makes_room(site: Site) -> None:
    """By two snapshots. There is nothing that they would cover: there were two before."""
    runtime = site.broker.runtime("sick")

    def lacks_room(core: PartitionCore) -> None:
        core.lacks_room = True

    site.server.goes_on.set()
    runtime.look(0, lacks_room).result(PATIENCE_SECONDS)
    while runtime.partitions[0].maintenance.snapshot_count < 2:
        looks_of(site, "sick").result(PATIENCE_SECONDS)
    site.server.goes_on.clear()
    runtime.look(0, lacks_room)


@pytest.mark.parametrize("does", [discards, makes_room])
def test_what_appends_though_nobody_sends_holds_its_own_partition_alone(
    does: Callable[[Site], None], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "ROOM_INTERVAL_MS", 1)
    for name in ("sick", "well"):
        site.sent(name)
    site.server.goes_on.clear()
    does(site)
    assert site.server.has_hung.wait(PATIENCE_SECONDS)
    for _ in range(30):
        site.sent("well")
        assert looks_of(site, "well").result(PATIENCE_SECONDS)
    site.server.goes_on.set()
    assert looks_of(site, "sick").result(PATIENCE_SECONDS) == 1


def test_keys_of_what_is_not_durable_yet_are_known_and_hold_nobody(site: Site) -> None:
    """Found by seed 500646 of simulated clusters: a batch with a key that a message on its way to
    the server had, waited for that server on the worker."""

    def keyed(*keys: str) -> Future[Reply]:
        return site.send("sick", len(keys), key=pa.array(keys, pa.utf8()))

    first = keyed("durable", "other").result(PATIENCE_SECONDS)
    site.sent("well")
    site.server.goes_on.clear()
    on_its_way = keyed("x", "in flight", "y")
    assert site.server.has_hung.wait(PATIENCE_SECONDS)
    filling = keyed("in the group")
    asked = keyed("in flight", "new", "durable", "in the group", "x")
    for _ in range(30):
        site.sent("well")
    assert not on_its_way.done()
    assert not asked.done()
    site.server.goes_on.set()
    ids = [one.result(PATIENCE_SECONDS).all_ids().tolist() for one in (on_its_way, filling)]
    found = asked.result(PATIENCE_SECONDS)
    kept = [RowStatus.DUPLICATE] * 5
    kept[1] = RowStatus.OK
    assert found.all_statuses().tolist() == kept
    new = found.all_ids().tolist()[1]
    assert found.all_ids().tolist() == [ids[0][1], new, first.all_ids()[0], ids[1][0], ids[0][0]]


def test_a_look_is_answered_while_batches_follow_each_other(site: Site) -> None:
    sends = []
    for _ in range(200):
        sends.append(site.send("well"))
        if len(sends) == 100:
            look = looks_of(site, "well")
    assert look.result(PATIENCE_SECONDS) >= 100
    assert all(one.result(PATIENCE_SECONDS).error is None for one in sends)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when somebody waits for an append, as who closes a partition does."""
    waits, wait = threading.Event(), Committer.wait

    def noted(self: Committer, *given: Any) -> None:
        waits.set()
        wait(self, *given)

    monkeypatch.setattr(Committer, "wait", noted)
    monkeypatch.setattr(handing_over, "PREPARE_SECONDS_MAX", 0.1)
    return waits


@pytest.mark.parametrize("drain", [False, True])
def test_a_topic_that_is_closed_while_its_journal_hangs_holds_no_other(
    site: Site, waits: threading.Event, drain: bool
) -> None:
    for name in ("sick", "well"):
        site.sent(name)
    site.server.goes_on.clear()
    held = site.send("sick")
    assert site.server.has_hung.wait(PATIENCE_SECONDS)
    runtime = site.broker.runtime("sick")
    giving = threading.Thread(target=lambda: site.broker.give("sick", drain=drain))
    waits.clear()
    giving.start()
    assert waits.wait(PATIENCE_SECONDS)
    for _ in range(30):
        site.sent("well")
    late = runtime.look(0, lambda core: None)
    assert giving.is_alive()
    assert not runtime.is_gone
    site.server.goes_on.set()
    giving.join(PATIENCE_SECONDS)
    assert held.result(PATIENCE_SECONDS).error is None
    assert late.exception(PATIENCE_SECONDS) is None or isinstance(late.exception(), Unavailable)
    assert runtime.is_gone


def test_who_closes_a_topic_waits_for_a_journal_that_hangs_only_so_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_topic, "CLOSE_SECONDS_MAX", 0.1)
    site.sent("sick")
    site.server.goes_on.clear()
    held = site.send("sick")
    assert site.server.has_hung.wait(PATIENCE_SECONDS)
    runtime = site.broker.runtime("sick")
    site.broker.give("sick", drain=False)
    assert not runtime.is_gone
    assert not held.done()
    site.server.goes_on.set()
    assert held.result(PATIENCE_SECONDS).error is None
    site.sent("well")
    clock = SystemClock()
    while not runtime.is_gone:
        clock.wait_until(clock.now_us() + 1_000, Wake())


def test_at_a_stop_a_journal_that_hangs_does_not_keep_others_from_being_closed(
    site: Site, waits: threading.Event
) -> None:
    for name in ("sick", "well"):
        site.sent(name)
    site.server.goes_on.clear()
    held = site.send("sick")
    assert site.server.has_hung.wait(PATIENCE_SECONDS)
    [well] = site.broker.runtime("well").partitions
    stopping = threading.Thread(target=site.broker.stop)
    waits.clear()
    stopping.start()
    assert waits.wait(PATIENCE_SECONDS)
    clock = SystemClock()
    until_us = clock.now_us() + PATIENCE_SECONDS * 1_000_000
    while well.loaded:
        assert clock.now_us() < until_us
        clock.wait_until(clock.now_us() + 1_000, Wake())
    assert stopping.is_alive()
    site.server.goes_on.set()
    stopping.join(PATIENCE_SECONDS)
    assert not stopping.is_alive()
    assert held.result(PATIENCE_SECONDS).error is None
