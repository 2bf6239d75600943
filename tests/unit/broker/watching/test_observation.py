"""Looking at a broker: what is due soon, at a small price for the workers.

Covered: every kind of topic, moved and cancelled messages, looks that are kept, partitions that
nobody used yet or that failed. Not covered: how it is shown (tests/unit/http/test_exposition.py).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls.look_ahead import Outlook
from dejaqueue.broker.watching.observation import Observer, TopicNumbers
from dejaqueue.client import Client
from dejaqueue.errors import ResourceExhausted
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic, TopicKind
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from tests.rules.broker_fixture import BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture()
    yield made
    made.stop()


def look(fixture: BrokerFixture) -> TopicNumbers:
    return next(Observer(fixture.broker).topics())


@pytest.mark.parametrize("kind", [TopicKind.TIMELINE, TopicKind.PRIORITY, TopicKind.FAIR])
def test_what_is_ready_and_what_is_due_soon(kind: TopicKind) -> None:
    fixture = BrokerFixture(kind=kind, partitions=2)
    now_ms = fixture.now_ms
    ahead_ms = [0, 1, 900, 1_001, 9_000, 59_000, 600_000, 3_599_000, 3_700_000]
    fixture.send([b"x"] * len(ahead_ms), [now_ms + ms for ms in ahead_ms])
    fixture.send([b"x"] * 3, [now_ms - 5] * 3)
    found = look(fixture)
    fixture.stop()
    assert found.states["ready"] == 4
    assert found.outlook.due_within == (2, 4, 5, 6, 7)
    assert found.outlook.excess == 0


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR])
def test_what_is_ready_where_something_was_delivered(kind: TopicKind) -> None:
    fixture = BrokerFixture(kind=kind)
    fixture.send([b"x"] * 10, [fixture.now_ms] * 10)
    fixture.send([b"x"] * 2, [fixture.now_ms + 5_000] * 2)
    fixture.consumer(credit=4).take_all()
    found = look(fixture)
    fixture.stop()
    assert (found.states["ready"], found.states["leased"]) == (6, 4)
    assert found.outlook.due_within == (0, 2, 2, 2, 2)


def test_numbers_may_be_too_high_by_what_was_cancelled_and_say_so(fixture: BrokerFixture) -> None:
    reply = fixture.send([b"x"] * 10, [fixture.now_ms + 500] * 10)
    fixture.cancel(reply.all_ids().tolist()[:4])
    found = look(fixture)
    real = 6
    assert real <= found.outlook.due_within[0] <= real + found.outlook.excess
    assert found.outlook.due_within[0] <= found.states["scheduled"] + found.outlook.excess


def test_look_is_kept_for_a_second(fixture: BrokerFixture) -> None:
    observer = Observer(fixture.broker)
    fixture.send([b"x"], [fixture.now_ms + 60_000])
    assert next(observer.topics()).outlook.due_within[-1] == 1
    fixture.send([b"x"], [fixture.now_ms + 60_000])
    assert next(observer.topics()).outlook.due_within[-1] == 1
    fixture.advance(1_000)
    assert next(observer.topics()).outlook.due_within[-1] == 2


def test_partition_that_nobody_used_is_read(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path / "a")
    fixture.send([b"x"], [fixture.now_ms + 60_000])
    fixture.restart()
    found = look(fixture)
    fixture.stop()
    assert found.outlook.due_within[-1] == 1
    assert (found.partitions, found.loaded, found.failed) == (1, 1, 0)


def test_totals_do_not_fall_and_are_right_when_a_partition_is_read_again(tmp_path: Path) -> None:
    files = FaultyFileSystem(FileSystem())
    store = SegmentStore(tmp_path, segment_bytes=1 << 20, reserve_bytes=0, file_system=files)
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), store=store)
    broker.start()
    broker.create_topic(Topic("a"))
    observer, seen = Observer(broker), []
    with Client(transport=LocalTransport(broker), retry_ms_max=0) as client:
        for number in range(1, 6):
            client.send("a", b"x")
            if number == 3:  # the disk is full in the middle of a write: the engine is thrown away
                files.fail("write", number=errno.ENOSPC)
                with pytest.raises(ResourceExhausted):
                    client.send("a", b"lost")
            found = next(observer.topics())
            seen.append((found.totals["enqueued"], found.appended_bytes))
    broker.stop()
    counts, byte_counts = zip(*seen, strict=True)
    assert counts[:2] == (1, 2)
    assert counts[-1] == 5
    assert list(counts) == sorted(counts)
    assert list(byte_counts) == sorted(byte_counts)
    assert byte_counts[0] > 0


def test_stopped_broker_has_no_topics(fixture: BrokerFixture) -> None:
    fixture.broker.stop()
    assert list(Observer(fixture.broker).topics()) == []


def test_outlooks_add_up() -> None:
    one = Outlook(1, (1, 2, 3, 4, 5), 6)
    assert one + one == Outlook(2, (2, 4, 6, 8, 10), 12)
