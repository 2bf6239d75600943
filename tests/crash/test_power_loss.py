"""The power of a disk is cut under a real broker; its first failed sync; a full and a sick disk.

Covered: the broker's process, on a file system that loses what was not synced. The same at every
single call, in one process: test_segment_journal.py. Needs FUSE (lossy_mount.py): a container that
has none leaves this out, `make reliability` insists on it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client, DejaQError
from tests.crash.broker_process import BrokerProcess
from tests.crash.load import Load
from tests.crash.lossy_mount import LossyMount, missing

pytestmark = [pytest.mark.crash, pytest.mark.may_skip]

CUTS = int(os.environ.get("DEJAQ_POWER_CUTS", "2"))
REQUIRED = os.environ.get("DEJAQ_RELIABILITY") == "all"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LossyMount]:
    lacks = missing()
    if lacks and not REQUIRED:
        pytest.skip(f"no lossy disk here: {lacks}")
    mount = LossyMount(tmp_path)
    try:
        mount.mount()
    except OSError as failure:
        if REQUIRED:
            raise
        pytest.skip(f"no lossy disk here: {failure}")
    yield mount
    mount.close()


@pytest.fixture
def broker(disk: LossyMount, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        disk.at / "data",
        tmp_path / "broker.log",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=100,
        journal__reserve_bytes=0,
    )
    process.start()
    yield process
    process.kill()


def cut(disk: LossyMount, broker: BrokerProcess, seed: int, share: float) -> int:
    """The machine loses power; the broker starts on what the disk has left."""
    lost = disk.cut_power(seed, share)
    with pytest.raises(OSError):  # what is written from now on would be a disk that lives on
        (disk.at / "data" / "lock").read_bytes()
    broker.kill()
    disk.close()
    disk.mount()
    broker.start()
    return lost


def test_what_was_acknowledged_survives_power_cuts(disk: LossyMount, broker: BrokerProcess) -> None:
    load = Load(broker.url)
    load.begin()
    try:
        for number in range(CUTS):
            threading.Event().wait(1.0 + number % 3 * 0.4)
            cut(disk, broker, number, (0.5, 0.0, 0.9)[number % 3])
    finally:
        load.end()
    history = load.history
    print(f"sent={len(history.sent)} got={len(history.deliveries)} acked={len(history.acked_us)}")
    assert len(history.acked_us) > 20
    assert history.faults()[:10] == []


def test_a_disk_that_lies_about_its_syncs_loses_messages(
    disk: LossyMount, broker: BrokerProcess
) -> None:
    """The negative control: if this lost nothing, the test above would prove nothing."""
    assert disk.ask("lie 1") == "done"
    with Client(broker.url) as client:
        client.create_topic("control")
        sent = [client.send("control", b"x" * 100, delay=600) for _ in range(50)]
    assert len(sent) == 50
    assert disk.cut_power(1, 0.0) > 0
    broker.kill()
    disk.close()
    disk.mount()
    broker.start()
    with Client(broker.url) as client:
        names = [topic.name for topic in client.topics()]
        left = client.stats("control")["scheduled"] if "control" in names else 0
    assert left < len(sent)


def test_the_first_failed_sync_is_final_for_the_process(
    disk: LossyMount, broker: BrokerProcess
) -> None:
    with Client(broker.url, retry_ms_max=2_000) as client:
        client.create_topic("t")
        client.send("t", b"before", delay=600)
        disk.ask(f"fail sync 0 {errno.EIO}")
        with pytest.raises(DejaQError):
            client.send("t", b"lost, or not", delay=600)
        calls = int(disk.ask("calls sync"))
        with pytest.raises(DejaQError):  # the disk would work again, but who knows what it has
            client.send("t", b"after", delay=600)
        assert int(disk.ask("calls sync")) - calls <= 1  # another file's, but not this journal's
    broker.kill()
    broker.start()
    with Client(broker.url) as client:
        assert client.stats("t")["scheduled"] in (1, 2)
        client.send("t", b"after", delay=600)


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EROFS, errno.EIO] if REQUIRED else [errno.ENOSPC]
)
def test_a_disk_that_takes_no_writes_refuses__and_nothing_acknowledged_is_lost(
    disk: LossyMount, broker: BrokerProcess, number: int
) -> None:
    with Client(broker.url, retry_ms_max=2_000) as client:
        client.create_topic("t")
        fine = [client.send("t", b"x", delay=600) for _ in range(5)]
        for op in ("write", "truncate"):
            disk.ask(f"always {op} {number}")
        with pytest.raises(DejaQError):
            client.send("t", b"no room", delay=600)
        for op in ("write", "truncate"):
            disk.ask(f"always {op} 0")
    if number != errno.ENOSPC:  # whether the last write is there is not known: a new process asks
        broker.kill()
        broker.start()
    with Client(broker.url, retry_ms_max=20_000) as client:
        fine.append(client.send("t", b"again", delay=600))
        assert client.stats("t")["scheduled"] in (len(fine), len(fine) + 1)


def test_reads_that_fail_are_told_and_pass(disk: LossyMount, broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        client.create_topic("t")
        client.send("t", b"x", delay=600)
    broker.stop()
    disk.close()
    disk.mount()  # nothing of it is in memory any more
    disk.ask(f"always read {errno.EIO}")
    try:
        broker.start()
    except AssertionError as refused:
        assert "Traceback" not in str(refused).split("did not start")[0]
    else:
        broker.kill()
    disk.ask("always read 0")
    broker.start()
    with Client(broker.url) as client:
        assert client.stats("t")["scheduled"] == 1
