"""Covers: rows over many segments, short and long values, several Arrow buffers in one segment.

Not covered: what every backend does (testing/journal_conformance.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments import gather, memory, segment
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.journal_conformance import fill, read_rows, rows_of, text_column


def test_rows_of_many_segments_after_a_restart(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    store = SegmentStore(tmp_path, segment_bytes=1 << 13)
    journal = store.open("topic", 0)
    written = fill(journal, random, 300)
    for position in (journal.tail - 1, journal.tail):  # so that old segments are not walked
        journal.put_snapshot(position, "{}", [])
        journal.truncate(position)
    store.close()
    store = SegmentStore(tmp_path, segment_bytes=1 << 13)
    journal = store.open("topic", 0)
    listed = journal.log.listed
    assert len(listed.segments) > 20
    assert listed.loaded.sum() == 1, "old segments were mapped without need"
    last = [locator for locator in written if locator >> 20 >= listed.firsts[-2]]
    assert read_rows(journal, last) == [written[locator] for locator in last]
    assert listed.loaded.sum() == 2
    assert listed.segments[-2].verified() is not None
    asked = random.permutation(list(written)).tolist()
    assert read_rows(journal, asked) == [written[locator] for locator in asked]
    assert listed.loaded.all()
    store.close()


def test_short_values_of_every_length_to_the_end_of_a_segment() -> None:
    # Values up to 12 bytes are read 12 bytes at once, and must not be read over the end.
    journal = MemoryStore(segment_bytes=1 << 12).open("topic", 0)
    rows: dict[int, dict[str, bytes | None]] = {}
    for length in range(40):
        texts = {"payload": text_column([bytes([65 + length]) * length] * 24)}
        entry = Entry(EntryKind.ENQUEUE, 0, rows=24, texts=texts)
        journal.append([entry], journal.tail, 1)
        rows |= rows_of(entry, journal.tail)
    assert read_rows(journal, list(rows)) == list(rows.values())


def test_a_segment_larger_than_an_offset_of_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    # Buffers of 2 GiB are played by buffers of 1 KiB.
    monkeypatch.setattr(segment, "SLICE_BITS", 10)
    monkeypatch.setattr(memory, "SLICE_BITS", 10)
    monkeypatch.setattr(memory, "_SLICE_BYTES", (1 << 11) - 1)
    monkeypatch.setattr(gather, "SLICE_BITS", 10)
    monkeypatch.setattr(gather, "_SLICE_MASK", (1 << 10) - 1)
    journal = MemoryStore(segment_bytes=1 << 15).open("topic", 0)
    written = fill(journal, np.random.default_rng(2), 60)
    assert len(journal.log.listed.buffers) >= 32
    assert read_rows(journal, list(written)) == list(written.values())


def test_more_than_arrow_can_hold_is_refused() -> None:
    payload = bytes(1 << 20)
    texts = {"payload": TextColumn(np.array([0, 1 << 20], dtype=np.int32), payload)}
    journal = MemoryStore().open("topic", 0)
    journal.append([Entry(EntryKind.ENQUEUE, 0, rows=1, texts=texts)], 0, 1)
    with pytest.raises(BadRequest, match="payload"):
        journal.read(np.full(1 << 11, 1 << 20, dtype=np.int64), ("payload",))
