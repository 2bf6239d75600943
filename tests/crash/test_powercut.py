"""The model of a disk that loses power; and cuts beneath SQLite under load, with the control.

Covered: volatile.py. All engines, and more cuts: `make powercut`.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.crash.lossy_mount import missing
from tests.crash.powercut import CONTROL_MESSAGES, control, under_load
from tests.crash.powercut_engines import Engine, engine_on
from tests.crash.volatile import VolatileFiles

REQUIRED = os.environ.get("DEJAQ_RELIABILITY") == "all"


class Disk(VolatileFiles):
    """With calls by name."""

    def __init__(self, place: Path, *, journaled: bool = True) -> None:
        for name in ("back", "gone"):
            (place / name).mkdir(exist_ok=True)
        super().__init__(place / "back", place / "gone")
        self.journaled = journaled

    def make(self, name: str) -> int:
        fd = os.open(self.back / name, os.O_RDWR | os.O_CREAT)
        self.named(self.back / name)
        return fd

    def cut(self, seed: int = 1, survival: float = 0.0) -> None:
        self.power_cut(np.random.default_rng(seed), survival)

    def found(self) -> dict[str, bytes]:
        paths = [path for path in self.back.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.back)): path.read_bytes() for path in paths}


def test_what_grew_and_was_not_synced_is_gone(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    fd = disk.make("a")
    disk.write(fd, b"durable", 0)
    disk.sync(fd, contents_only=True)
    disk.write(fd, b" and not", 7)
    disk.write(fd, b"D", 0)
    disk.truncate(fd, 3)
    disk.cut()
    assert disk.found() == {"a": b"durable"}
    assert os.pread(fd, 20, 0) == b"durable"
    os.close(fd)


def test_a_sector_is_any_of_its_contents_and_never_a_mixture(tmp_path: Path) -> None:
    seen = set()
    for seed in range(60):
        place = tmp_path / str(seed)
        place.mkdir()
        disk = Disk(place)
        fd = disk.make("a")
        disk.write(fd, b"0" * 1024, 0)
        disk.sync(fd, contents_only=False)
        for number in (b"1", b"2"):
            disk.write(fd, number * 512, 0)
            disk.write(fd, number * 512, 512)
        disk.cut(seed, 0.5)
        content = disk.found()["a"]
        for sector in (content[:512], content[512:]):
            assert len(set(sector)) == 1
        seen.add(content[:1] + content[512:513])
        os.close(fd)
    assert seen == {a + b for a in (b"0", b"1", b"2") for b in (b"0", b"1", b"2")}


@pytest.mark.parametrize("journaled", [True, False])
def test_names_are_durable_with_their_directory(tmp_path: Path, journaled: bool) -> None:
    disk = Disk(tmp_path, journaled=journaled)
    old = disk.make("name")
    disk.write(old, b"old", 0)
    disk.sync(old, contents_only=False)
    disk.sync_directory(disk.back)
    draft = disk.make("draft")
    disk.write(draft, b"new", 0)
    disk.sync(draft, contents_only=False)
    disk.rename(disk.back / "draft", disk.back / "name")
    disk.cut()
    # Linux makes the name of a new file durable with its bytes; POSIX does not say so.
    assert disk.found() == {"name": b"old"} | ({"draft": b"new"} if journaled else {})
    again = disk.make("again")
    disk.rename(disk.back / "again", disk.back / "name")
    disk.unlink(disk.back / "name")
    disk.sync_directory(disk.back)
    disk.cut()
    assert "name" not in disk.found()
    for fd in (old, draft, again):
        os.close(fd)


def test_directories_that_were_renamed_and_removed_come_back(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    (disk.back / "d").mkdir()
    disk.named(disk.back / "d", is_directory=True)
    fd = disk.make("d/file")
    disk.write(fd, b"x", 0)
    disk.sync(fd, contents_only=False)
    for _ in range(2):  # the same names twice
        disk.rename(disk.back / "d", disk.back / "aside")
        (disk.back / "d").mkdir()
        disk.named(disk.back / "d", is_directory=True)
        os.close(disk.make("d/file"))
        for path in sorted((disk.back / "aside").iterdir()):
            disk.unlink(path)
        disk.remove_directory(disk.back / "aside")
    disk.cut()
    assert disk.found() == {"d/file": b"x"}
    os.close(fd)


# --- with FUSE --------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[Engine]:
    lacks = missing()
    if lacks and not REQUIRED:
        pytest.skip(f"no lossy disk here: {lacks}")
    place = Path(tempfile.mkdtemp(prefix="dejaq-power-"))  # others may not enter pytest's folder
    try:
        with engine_on("sqlite", place, random.Random(1)) as found:
            yield found
    except OSError as failure:
        if REQUIRED or "is not mounted" not in str(failure):
            raise
        pytest.skip(f"no lossy disk here: {failure}")
    finally:
        shutil.rmtree(place)


@pytest.mark.crash
@pytest.mark.may_skip
def test_sqlite_keeps_what_was_acknowledged__and_loses_it_on_a_disk_that_lies(
    engine: Engine,
) -> None:
    verdict = under_load(engine, 2, random.Random(2))
    assert verdict.faults == []
    assert verdict.acked > 50
    assert control(engine) == (CONTROL_MESSAGES, CONTROL_MESSAGES)
