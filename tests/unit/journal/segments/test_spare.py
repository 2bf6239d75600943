"""Covers: the spare is ready, half ready or not there, and the journal takes each."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.spare import Spare, allocate_file
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.journal_conformance import fill, read_rows


def test_a_spare_is_allocated_and_taken(tmp_path: Path) -> None:
    spare = Spare(FileSystem(), tmp_path, 3 << 20)
    with ThreadPoolExecutor(1) as pool:
        spare.chore = pool.submit(spare.prepare)
        spare.chore.result()
        file = spare.take()
    assert file is not None
    assert file.byte_count() == 3 << 20
    file.close()


def test_a_spare_taken_before_its_turn_is_none(tmp_path: Path) -> None:
    spare = Spare(FileSystem(), tmp_path, 1 << 20)
    assert spare.take() is None
    spare.prepare()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_allocation_leaves_nothing() -> None:
    disk = MemoryFileSystem()
    disk.make_directory(Path("/d"))
    files = FaultyFileSystem(disk)
    files.fail("allocate", number=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        allocate_file(files, Path("/d/x"), 4096)
    assert disk.names(Path("/d")) == []


@pytest.mark.parametrize("operation", ["allocate", "write", "sync", "open", "none"])
def test_the_journal_goes_on_whatever_becomes_of_its_spare(operation: str) -> None:
    files = FaultyFileSystem(MemoryFileSystem(), spares=True)
    journal = MemoryStore(file_system=files, segment_bytes=1 << 13).open("topic", 0)
    prepare = journal.log._prepare_spare
    prepared = 0

    def prepare_badly(file_bytes: int) -> None:
        nonlocal prepared
        prepared += 1
        files.fail_always(operation, errno.EIO)
        prepare(file_bytes)
        files.fail_always(operation, None)

    journal.log._prepare_spare = prepare_badly  # type: ignore[method-assign]
    written = fill(journal, np.random.default_rng(1), 100)
    assert prepared > 3
    assert (journal.log.chore_failure is None) == (operation == "none")
    assert read_rows(journal, list(written)) == list(written.values())
