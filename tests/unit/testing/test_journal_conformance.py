"""Covers: the conformance suite finds journals that break a duty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import TEXT_COLUMNS, Entry, Int64s, SnapshotFile
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.testing.journal_conformance import JournalConformance

Whole = SegmentJournal


def _unfenced(self: Whole, entries: Sequence[Entry], after: int, epoch: int) -> int:
    return APPEND(self, entries, self.tail, epoch)


def _unordered(self: Whole, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.Table:
    return READ(self, np.sort(locators), columns)


def _forgetful(self: Whole, position: int, meta: str, files: Sequence[SnapshotFile]) -> None:
    PUT(self, position, meta, [file for file in files if file.content is not None])


def _greedy(self: Whole, position: int) -> None:
    """Gives nothing back."""


APPEND, READ, PUT = Whole.append, Whole.read, Whole.put_snapshot
BREACHES: list[tuple[str, Callable[..., object], str]] = [
    ("append", _unfenced, "test_an_append_elsewhere_than_at_the_tail_is_fenced"),
    ("read", _unordered, "test_read_gives_any_rows_in_the_order_asked"),
    ("put_snapshot", _forgetful, "test_the_newest_snapshot_is_found_with_its_files"),
    ("truncate", _greedy, "test_dead_entries_give_their_room_back"),
    ("close", lambda self: None, "test_a_closed_journal_is_unavailable"),
]


class Memory(JournalConformance):
    durable = False

    def make_store(self, directory: Path) -> MemoryStore:
        return MemoryStore(segment_bytes=1 << 14)


@pytest.mark.parametrize(("method", "breach", "test"), BREACHES)
def test_a_breach_is_found(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    method: str,
    breach: Callable[..., object],
    test: str,
) -> None:
    getattr(Memory(), test)(tmp_path)
    monkeypatch.setattr(Whole, method, breach)
    with pytest.raises((AssertionError, DejaQError)):
        getattr(Memory(), test)(tmp_path)
