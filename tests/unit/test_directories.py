"""Nobody else can enter what the broker makes, whatever the umask; what was there stays."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.broker.history.files import Files
from dejaqueue.cluster.jetstream_settings import Node
from dejaqueue.cluster.servers import ServerAddress, write_addresses
from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.directories import make_directory, make_file
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.store import SegmentStore


@pytest.fixture(autouse=True)
def _lenient_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def open_ones(root: Path) -> list[str]:
    """Directories that others could enter, and SQLite's files that they could read."""
    found = [root, *root.rglob("*")]
    return [
        str(path)
        for path in found
        if (path.is_dir() or ".db" in path.name) and path.stat().st_mode & 0o077
    ]


def segments(root: Path) -> None:
    store = SegmentStore(root)
    store.open("t", 0).close()
    store.drop("t")
    store.close()


def mirrored(root: Path) -> None:
    store = RecordJournalStore(MemoryRecordStore(), mirror=root)
    store.open("t", 0).close()
    store.close()


def history(root: Path) -> None:
    files = Files(root)
    path = files.open_path("t", 0, 1)
    path.touch()
    files.finish(path, "t", 0, 0, 1, 1)


def facts_of_sqlite(root: Path) -> None:
    coordinator = open_coordinator(f"sqlite:///{root}/facts.db")
    coordinator.put("a", b"x")
    coordinator.close()


def servers(root: Path) -> None:
    write_addresses(root, [ServerAddress(Node("a", "127.0.0.1", 1, 2))])


def whole(root: Path) -> None:
    with dejaqueue.open(str(root)) as client:
        client.create_topic("t", history=True)
        client.send("t", b"x")


MAKERS = [segments, mirrored, history, facts_of_sqlite, servers, whole]


@pytest.mark.parametrize("make", MAKERS)
def test_nobody_else_can_enter_what_is_made(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "above" / "data")
    assert (tmp_path / "above" / "data").is_dir()
    assert open_ones(tmp_path / "above") == []


@pytest.mark.parametrize("make", [segments, mirrored])
def test_a_directory_that_is_open_to_others_stays_so_and_is_told_of(
    make: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "data"
    root.mkdir(mode=0o755)
    make(root)
    assert root.stat().st_mode & 0o777 == 0o755
    assert f"`chmod 700 {root}` unless that is meant" in caplog.text
    assert [path for path in open_ones(root) if path != str(root)] == []


def test_history_in_a_directory_that_others_may_read_can_be_read(tmp_path: Path) -> None:
    root = tmp_path / "history"
    root.mkdir(mode=0o750)
    history(root)
    modes = {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()}
    assert modes == {0o750}


def test_a_file_that_is_there_is_left_alone__also_by_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    make_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    held = Sqlite(f"sqlite:///{path}").connect()
    make_file(path)  # were it opened and closed, the lock would be gone
    pid = os.fork()
    if not pid:
        try:
            sqlite3.connect(path, timeout=0).execute("CREATE TABLE t (x)")
        except sqlite3.OperationalError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    held.close()
    assert path.stat().st_mode & 0o777 == 0o644


def test_directories_above_are_made_too_and_stay_as_they_are(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b")
    (tmp_path / "a").chmod(0o755)
    make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755
