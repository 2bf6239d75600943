"""Whether a broker should be given work: what real faults of disk and threads say.

Covered: every phase, a sync that failed, a full disk, a dead worker. Not covered: what is answered
over HTTP (tests/unit/http/routes/test_health.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.watching.health import SHOWN_MAX, Health, health_of
from dejaqueue.client import Client
from dejaqueue.errors import ResourceExhausted, Unavailable
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.virtual_clock import VirtualClock


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem(FileSystem())


@pytest.fixture
def broker(files: FaultyFileSystem, tmp_path: Path) -> Iterator[Broker]:
    store = SegmentStore(tmp_path, segment_bytes=1 << 20, reserve_bytes=1 << 20, file_system=files)
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), store=store)
    made.start()
    made.create_topic(Topic("a", partitions=8))
    yield made
    made.stop()


def send(broker: Broker, count: int = 1) -> None:
    with Client(transport=LocalTransport(broker), retry_ms_max=0) as client:
        for number in range(count):
            rows = [{"payload": b"x", "partition": number}]
            client.send_batch("a", rows).ids  # noqa: B018 - raises what went wrong


def test_phases_of_a_life() -> None:
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    assert health_of(made) == Health(("not started",))
    made.start()
    assert health_of(made) == Health()
    made.stop()
    assert health_of(made) == Health(("stopped",))


def test_broker_that_serves_is_ready(broker: Broker) -> None:
    send(broker)
    assert health_of(broker).is_ready
    assert health_of(broker).warnings == ()


def test_a_clock_that_nothing_keeps_is_a_warning__and_no_reason(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.operating_system._adjtimex", lambda timex: 5)
    assert health_of(broker) == Health(
        warnings=("no time synchronisation keeps the machine's clock, says its kernel",)
    )
    broker.clock = VirtualClock()
    assert health_of(broker).warnings == ()


def test_sync_that_failed_is_final_and_named(broker: Broker, files: FaultyFileSystem) -> None:
    send(broker)
    files.fail("sync")
    with pytest.raises(Unavailable):
        send(broker)
    health = health_of(broker)
    assert not health.is_ready
    assert health.reasons == ("partitions that failed: 1; start the broker anew",)
    [detail] = health.details
    assert detail.startswith("topic a, partition 0: ")


def test_many_failures_are_counted_not_listed(broker: Broker, files: FaultyFileSystem) -> None:
    send(broker, 8)
    files.fail_always("sync", 5)
    for number in range(8):
        with Client(transport=LocalTransport(broker), retry_ms_max=0) as client:  # noqa: SIM117
            with pytest.raises(Unavailable):
                client.send_batch("a", [{"payload": b"x", "partition": number}])
    files.fail_always("sync", None)
    assert health_of(broker).reasons == ("partitions that failed: 8; start the broker anew",)
    assert len(health_of(broker).details) == SHOWN_MAX


def test_full_disk_is_a_warning_since_consumers_make_room(
    broker: Broker, files: FaultyFileSystem
) -> None:
    send(broker)
    files.free = 0
    with pytest.raises(ResourceExhausted):
        send(broker)
    health = health_of(broker)
    assert health.is_ready
    assert health.warnings == ("the disk is full: producers are refused, consumers go on",)
    files.free = None
    assert health_of(broker).warnings == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_dead_worker_is_a_reason(broker: Broker) -> None:
    send(broker)
    worker = broker.workers[1]
    ended = threading.Event()

    def break_it() -> None:
        ended.set()
        raise RuntimeError("a bug")

    worker.call(break_it)
    assert ended.wait(10)
    worker._thread.join(10)
    assert health_of(broker).reasons == ("1 of 2 workers died",)
    # So that the broker can be stopped: what is asked of the dead worker is done here.
    worker._thread = threading.Thread(target=worker._run)
    worker._thread.start()
    assert health_of(broker).is_ready
