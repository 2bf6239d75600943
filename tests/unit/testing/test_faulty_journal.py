"""Covers: the faulty file system fails what it is told to, and its power cut loses what it may."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.files import read_file
from dejaqueue.testing.faulty_journal import FaultyFileSystem

ROOT = Path("/disk")


@pytest.fixture
def files() -> FaultyFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory(ROOT)
    return FaultyFileSystem(disk)


def content(files: FaultyFileSystem, name: str) -> bytes:
    return bytes(read_file(files.inner, ROOT / name))


def test_the_named_call_fails_once(files: FaultyFileSystem) -> None:
    file = files.open(ROOT / "a", create=True)
    file.allocate(100)
    files.fail("write", after=1, number=errno.ENOSPC)
    file.write([b"one"], 0)
    with pytest.raises(OSError, match="No space"):
        file.write([b"twotwo"], 10)
    file.write([b"three"], 20)
    assert content(files, "a")[:25] == b"one" + bytes(7) + b"two" + bytes(7) + b"three"


def test_a_power_cut_keeps_what_was_synced(files: FaultyFileSystem) -> None:
    file = files.open(ROOT / "a", create=True)
    file.allocate(4096)
    file.write([b"s" * 1024], 0)
    file.sync()
    files.sync_directory(ROOT)
    file.write([b"u" * 2048], 512)
    files.power_cut(np.random.default_rng(1), survival=0)
    assert content(files, "a") == b"s" * 1024 + bytes(3072)


def test_a_power_cut_tears_by_sectors(files: FaultyFileSystem) -> None:
    file = files.open(ROOT / "a", create=True)
    file.allocate(1 << 16)
    files.sync_directory(ROOT)
    file.write([b"u" * (1 << 16)], 0)
    files.power_cut(np.random.default_rng(2))
    sectors = {content(files, "a")[at : at + 512] for at in range(0, 1 << 16, 512)}
    assert sectors == {bytes(512), b"u" * 512}


def test_a_power_cut_loses_names_from_the_last_backwards(files: FaultyFileSystem) -> None:
    seen = set()
    for seed in range(40):
        disk = MemoryFileSystem()
        disk.make_directory(ROOT)
        files = FaultyFileSystem(disk)
        for name in ("a", "b"):
            file = files.open(ROOT / name, create=True)
            file.allocate(4)
            file.write([name.encode() * 4], 0)
            file.sync()
        files.sync_directory(ROOT)
        files.rename(ROOT / "a", ROOT / "b")
        files.unlink(ROOT / "b")
        files.power_cut(np.random.default_rng(seed))
        seen.add(tuple((name, content(files, name)) for name in disk.names(ROOT)))
    both = (("a", b"aaaa"), ("b", b"bbbb"))
    assert seen == {both, (("b", b"aaaa"),), ()}
