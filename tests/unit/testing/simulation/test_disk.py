"""The simulated disk: a process dies in the middle of a call, a power cut loses the unsynced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dejaqueue.testing.simulation.disk import Died, SimulatedDisk, SimulatedStore
from dejaqueue.testing.simulation.world import World

HERE = Path("disk:")


def disk_with_a_file(synced: bytes, unsynced: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(World(1))
    disk.make_directory(HERE)
    file = disk.open(HERE / "a", create=True)
    file.allocate(8_192)
    file.write([synced], 0)
    file.sync()
    disk.sync_directory(HERE)
    file.write([unsynced], 4_096)
    return disk


def content(disk: SimulatedDisk, start: int, size: int) -> bytes:
    return bytes(memoryview(disk.open(HERE / "a").map(8_192))[start : start + size])


def test_a_power_cut_takes_what_was_not_synced_in_part() -> None:
    kept = set()
    for seed in range(40):
        disk = disk_with_a_file(b"x" * 4_096, b"y" * 4_096)
        disk._world = World(seed)
        disk.cut_power()
        assert content(disk, 0, 4_096) == b"x" * 4_096
        kept.add(content(disk, 4_096, 4_096).count(b"y"))
    assert len(kept) > 3
    assert all(count % 512 == 0 for count in kept)


def test_a_process_dies_in_the_middle_of_a_call() -> None:
    disk = disk_with_a_file(b"", b"")
    file = disk.open(HERE / "a")
    disk.dies_at = 2
    file.write([b"z"], 0)
    with pytest.raises(Died):
        file.sync()
    assert disk.dies_at is None
    disk.fail_always("write", errno.ENOSPC)
    with pytest.raises(OSError):
        file.write([b"z"], 0)
    disk.heal()
    file.write([b"z"], 0)


def test_a_store_opens_on_it_without_a_lock() -> None:
    disk = SimulatedDisk(World(1))
    first = SimulatedStore(disk)
    second = SimulatedStore(disk)
    first.store_document("keys", "{}")
    assert second.load_document("keys") == "{}"
