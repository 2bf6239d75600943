"""Disk and Restarter by themselves; with real servers and disks: tests/cluster/test_disk.py."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dejaqueue.cluster import disk as module
from dejaqueue.cluster.disk import (
    ASK_MS,
    PAUSE_MS,
    PAUSE_MS_MAX,
    ROOM_BYTES,
    TRIES_MAX,
    Disk,
    Restarter,
)
from dejaqueue.errors import Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

RESERVE = 1_000


class Server:
    """A server, its disk and who looks after both."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes, self.is_off, self.takes_writes = 10 * RESERVE, False, True
        self.restarts: list[int] = []
        self.is_silent = False
        monkeypatch.setattr(os, "statvfs", self._measure)
        monkeypatch.setattr(Disk, "takes_writes", lambda _: self.takes_writes)
        self.clock = VirtualClock()
        self.disk = Disk(Path("somewhere"), RESERVE)
        self.restarter = Restarter(self.disk, self._ask, self._restart, self.clock)

    def _measure(self, path: Path) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=self.free_bytes, f_frsize=1)

    def _ask(self) -> bool:
        if self.is_silent:
            raise Unavailable("no answer")
        return self.is_off

    def _restart(self) -> None:
        self.restarts.append(self.clock.now_ms())

    def look(self, after_ms: int = 0) -> None:
        self.clock.advance(us=after_ms * 1_000)
        self.restarter.look()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_a_disk_is_short_until_a_quarter_more_than_the_reserve_is_free(server: Server) -> None:
    for free_bytes, is_short in (
        (RESERVE, False),
        (RESERVE - 1, True),
        (RESERVE + RESERVE // 4 - 1, True),
        (RESERVE + RESERVE // 4, False),
        (RESERVE, False),
    ):
        server.free_bytes = free_bytes
        server.disk.look()
        assert (server.disk.is_short, server.disk.free_bytes) == (is_short, free_bytes)


def test_a_disk_that_cannot_be_measured_stays_as_it_was(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "nothing", RESERVE)
    disk.look()
    assert (disk.free_bytes, disk.is_short) == (None, False)


def test_a_probe_tells_whether_a_disk_takes_writes_and_leaves_nothing(tmp_path: Path) -> None:
    assert Disk(tmp_path, 0).takes_writes()
    assert not list(tmp_path.iterdir())
    assert not Disk(tmp_path / "nothing", 0).takes_writes()


def test_a_disk_with_too_little_room_for_a_server_takes_no_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [ROOM_BYTES - 1, ROOM_BYTES]
    facts = lambda _: SimpleNamespace(f_bavail=free.pop(0), f_frsize=1)  # noqa: E731
    monkeypatch.setattr(os, "statvfs", facts)
    assert [Disk(tmp_path, 0).takes_writes() for _ in range(2)] == [False, True]


def test_a_server_that_is_off_is_started_again_when_its_disk_takes_writes(server: Server) -> None:
    server.look(ASK_MS)
    server.is_off, server.takes_writes = True, False
    server.look(ASK_MS)
    assert not server.restarts
    assert server.restarter.is_trying
    server.takes_writes = True
    server.look(1)
    assert server.restarter.count == len(server.restarts) == 1


@pytest.mark.parametrize(
    "line",
    [
        "Filestore [S-R3F] Critical write error: write 1.blk: read-only file system",
        "JetStream file resource limits exceeded for server",
        "Failed to flush pending data: write 5.blk: no space left on device",
    ],
)
def test_a_server_that_lost_a_copy_to_a_write_is_started_again__though_it_is_on(
    server: Server, line: str
) -> None:
    server.is_silent = True  # or it is too busy to say that it is well
    server.restarter.read("Server is ready")
    server.look()
    assert not server.restarts
    server.restarter.read(line)
    server.look(1)
    server.look(PAUSE_MS)
    assert len(server.restarts) == 1


def test_restarts_that_do_not_help_come_less_often_and_others_have_their_turn(
    server: Server,
) -> None:
    server.is_off = True
    for _ in range(3_600):
        server.look(1_000)
    waits = [b - a for a, b in zip(server.restarts, server.restarts[1:], strict=False)]
    assert waits[0] <= PAUSE_MS + ASK_MS + 1_000
    assert waits[-1] >= PAUSE_MS_MAX
    assert len(server.restarts) > TRIES_MAX
    assert not server.restarter.is_trying
    server.is_off = False
    for _ in range(400):
        server.look(1_000)
    server.is_off = True
    server.look(ASK_MS)
    assert server.restarts[-1] == server.clock.now_ms()  # what was before is forgotten


def test_room_that_comes_back_ends_the_wait(server: Server) -> None:
    server.is_off, server.free_bytes = True, RESERVE // 2
    for _ in range(120):
        server.look(1_000)
    assert server.restarter.is_trying
    count = len(server.restarts)
    server.free_bytes = 10 * RESERVE
    server.look(1)
    server.look(ASK_MS)
    assert len(server.restarts) == count + 1


def test_the_lines_that_tell_of_a_lost_copy_are_marked() -> None:
    assert not any(mark in "Waiting for routing to be established" for mark in module.WRITE_FAILED)
