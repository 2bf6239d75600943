"""Disks of the servers beside brokers: they get full or read-only, and well again.

Covered: a server that switched itself off, with one more node gone; one that lost a copy on a disk
that did not take writes; producers of a cluster of brokers, which wait before a disk is full. Not
covered: slow disks, many rounds (tests/chaos).
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from dejaqueue import Client
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.connections.nats.settling import UNDONE_MS
from dejaqueue.errors import Fenced, ResourceExhausted, Unavailable
from dejaqueue.journal.records.interface import RecordLog
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.model import RowStatus
from dejaqueue.testing.record_conformance import patiently
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.rot import until
from tests.crash import lossy_mount
from tests.crash.lossy_mount import LossyMount
from tests.crash.small_disk import SmallDisk, small_disk_or_skip
from tests.record_servers import NatsServers

pytest.importorskip("nats")
pytestmark = [pytest.mark.may_skip, pytest.mark.timeout(1_200)]

MIB = 1 << 20
WELL_MS = 300_000
"""Long enough for a machine that does many other things; seconds on one that does not."""
GIVEN_UP = "last sequence mismatch"
"""What a server says that gives up its copy of a stream."""
SHORT = "the disk of c has less than"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = small_disk_or_skip(tmp_path / "c", 96 * MIB)
    yield disk
    disk.close()


@contextmanager
def opened(servers: NatsServers) -> Iterator[RecordLog]:
    """A log on these servers."""
    store = patiently(lambda: NatsRecordStore(servers.url))
    try:
        yield patiently(lambda: store.open("t", 0))
    finally:
        store.close()


def nobody_may() -> NoReturn:
    raise AssertionError("a turn was taken: the others have to agree on that")


def write(log: RecordLog, count: int, byte_count: int = 100_000) -> None:
    """Append so many, each until it is in."""
    number, stored = patiently(log.last), 0
    while stored < count:
        try:
            patiently(lambda at=number: log.append(at, [[b"x" * byte_count]]))  # type: ignore[misc]
            number, stored = number + 1, stored + 1
        except Fenced:
            # It got no answer the first time, and came in all the same; or a leader that was just
            # cut off had said what was the last before (see Shard.last_of).
            last = patiently(log.last)
            number, stored = last, stored + (last == number + 1)


def is_whole(servers: NatsServers, name: str) -> bool:
    """The node has all that the others have."""
    status = servers.servers[name].status()
    return not status.flaw(status.lasts())


def is_done(servers: NatsServers, log: RecordLog) -> bool:
    """Node c has all there is, or has switched itself off."""
    status, last = servers.servers["a"].status(), patiently(log.last)
    own = [copy.last for copy in status.copies if copy.node == "c" and "-records-" in copy.stream]
    return "c" not in status.present or own == [last]


def test_a_server_that_switched_itself_off_comes_back__with_one_more_node_gone(
    tmp_path: Path, small_disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is given more to store while it switches itself off may give its copy up: it
    empties the log by which the copy votes. Then the copy has no vote until it has caught up, so
    records wait for the node that is gone; but the server comes back without it in any case."""
    servers = NatsServers(tmp_path, 3)
    try:
        for server in servers.servers.values():
            server.turn = nobody_may
        with opened(servers) as log:
            write(log, 10)
            small_disk.fill(leave_bytes=MIB)
            for _ in range(30):
                write(log, 1)
                until(lambda: is_done(servers, log), WELL_MS)
            until(lambda: "c" not in servers.servers["a"].status().present, WELL_MS)
            servers.servers["b"].stop()
            with pytest.raises(Unavailable):
                log.append(log.last(), [[b"y"]])
            small_disk.empty()
            until(lambda: "c" in servers.servers["a"].status().present, WELL_MS)
            if GIVEN_UP not in caplog.text:
                write(log, 1)
            servers.servers["b"].start(wait=False)
            write(log, 1)
            until(lambda: is_whole(servers, "a"), WELL_MS)
            last = patiently(log.last)
            assert last >= 41
            assert [number for number, _ in log.read(1, last + 1)] == list(range(1, last + 1))
    finally:
        servers.stop()


@pytest.fixture
def unsound_disk(tmp_path: Path) -> Iterator[LossyMount]:
    """Node c's disk, which can be made read-only."""
    if lossy_mount.missing():
        pytest.skip(lossy_mount.missing())
    disk = LossyMount(tmp_path / "mount")
    disk.mount()
    (tmp_path / "c").symlink_to(disk.at)
    yield disk
    disk.close()


def test_a_copy_that_a_disk_did_not_take_is_whole_again_when_it_takes_writes(
    tmp_path: Path, unsound_disk: LossyMount
) -> None:
    servers = NatsServers(tmp_path, 3)
    try:
        with opened(servers) as log:
            write(log, 10, 1_000)
            until(lambda: is_whole(servers, "a"), WELL_MS)
            unsound_disk.ask("read_only 1")
            write(log, 10, 1_000)
            until(lambda: not is_whole(servers, "a"), WELL_MS)
            unsound_disk.ask("read_only 0")
            write(log, 10, 1_000)
            until(lambda: is_whole(servers, "a"), WELL_MS)
            assert log.last() == 30
    finally:
        servers.stop()


def test_a_log_does_not_vanish_because_a_server_could_not_make_its_copy(
    tmp_path: Path, unsound_disk: LossyMount
) -> None:
    servers = NatsServers(tmp_path, 3)
    try:
        store = patiently(lambda: NatsRecordStore(servers.url))
        try:
            log = patiently(lambda: store.open("t", 0))
            unsound_disk.ask("read_only 1")  # a server that is late is making its copy now
            write(log, 10, 1_000)
            clock = SystemClock()
            clock.wait_until(clock.now_us() + UNDONE_MS * 1_000, Wake())
            assert [number for number, _ in log.read(1, 11)] == list(range(1, 11))
        finally:
            store.close()
    finally:
        servers.stop()


def test_producers_wait_before_a_disk_is_full_and_consumers_go_on(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    disk = small_disk_or_skip(directory, 256 * MIB)
    cluster = EmbeddedCluster(tmp_path, cluster__reserve_bytes=64 * MIB)
    try:
        cluster.start("a", "b", "c")
        with Client(cluster.url) as client:
            client.create_topic("t")
            client.send_batch("t", [{"payload": b"x" * 1_000}] * 100).raise_for_status()
            disk.fill(leave_bytes=48 * MIB)
            until(lambda: is_refused(cluster), WELL_MS)
            for name in ("a", "b", "c"):
                until(lambda name=name: SHORT in ready(cluster, name), WELL_MS)  # type: ignore[misc]
            assert metric(cluster, "a", "dejaq_journal_disks_short") == 1
            assert metric(cluster, "c", "dejaq_journal_disk_free_bytes") < 64 * MIB
            with client.consume("t") as consumer:
                for _, message in zip(range(100), consumer, strict=False):
                    assert message.ack(wait=True) == RowStatus.OK
            disk.empty()
            until(lambda: not is_refused(cluster), WELL_MS)
            until(lambda: SHORT not in ready(cluster, "b"), WELL_MS)
    finally:
        cluster.stop()
        disk.close()


def is_refused(cluster: EmbeddedCluster) -> bool:
    """A producer is."""
    with Client(cluster.url, retry_ms_max=500) as client:
        try:
            client.send("t", b"y")
        except ResourceExhausted as full:
            assert full.retry_after_ms > 0
            return True
        return False


def ready(cluster: EmbeddedCluster, name: str) -> str:
    with urllib.request.urlopen(f"{cluster.http_url(name)}/readyz", timeout=10) as answer:
        return json.dumps(json.load(answer))


def metric(cluster: EmbeddedCluster, name: str, metric: str) -> float:
    with urllib.request.urlopen(f"{cluster.http_url(name)}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{metric} "))
