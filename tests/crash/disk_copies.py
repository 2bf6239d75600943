"""Disks in memory that tests copy and spoil."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from dejaqueue.journal.interface import Entry, Journal, JournalStore
from dejaqueue.journal.memory import MemoryContent, MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.testing.journal_conformance import values_of

SEGMENT_BYTES = 1 << 13


def open_store(files: MemoryFileSystem, **settings: int) -> MemoryStore:
    return MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES, **settings)


def copied(files: MemoryFileSystem) -> MemoryFileSystem:
    """A disk with the same content."""
    copy = MemoryFileSystem()
    copy._directories = set(files._directories)
    for path, content in files._contents.items():
        mine = copy._contents[path] = MemoryContent()
        if content.memory is not None:
            mine.memory = mmap.mmap(-1, len(content.memory))
            mine.memory[:] = content.memory[:]
        mine.byte_count = content.byte_count
    return copy


def log_of(journal: Journal) -> ShardLog:
    """The log behind a journal in segments."""
    assert isinstance(journal, SegmentJournal)
    return journal.log


def segment_paths(files: MemoryFileSystem) -> list[Path]:
    return sorted(path for path in files._contents if path.suffix == ".segment")


def bytes_of(files: MemoryFileSystem, path: Path) -> np.ndarray:
    """The bytes of a file, to be changed in place."""
    content = files._contents[path]
    assert content.memory is not None
    return np.frombuffer(content.memory, np.uint8)[: content.byte_count]


def scanned(journal: Journal, after: int = 0) -> list[dict[str, object]]:
    return [values_of(entry) for _, _, entry in journal.scan(after)]


def append_all(store: JournalStore, appends: list[list[Entry]]) -> list[tuple[int, int]]:
    """Append, be killed, and return where each entry of the last segment begins and ends."""
    journal = store.open("topic", 0)
    for entries in appends:
        journal.append(entries, journal.tail, 1)
    segment = log_of(journal).listed.segments[-1]
    begins = [int(word) << 3 for word in segment.offsets()[: segment.count]]
    bounds = list(zip(begins, [*begins[1:], segment.used], strict=True))
    killed(journal)
    return bounds


def killed(journal: Journal) -> None:
    """Let go of a journal as a kill does: the mark of its tail is not written."""
    log_of(journal)._marked = journal.tail
    journal.close()
