"""Garbled segments, made at random: what is read was written, or the journal is refused.

Single bits, over all that a broker keeps: tests/corruption. Here whole stretches are overwritten,
moved, or cut off.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.testing.journal_conformance import fill, read_rows
from tests.crash.disk_copies import bytes_of, copied, segment_paths

SEGMENT_BYTES = 1 << 13
ENTRIES = 60


@cache
def written() -> tuple[MemoryFileSystem, dict[int, dict[str, bytes | None]]]:
    """A disk with some segments, and what is in each row."""
    files = MemoryFileSystem()
    journal = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
    rows = fill(journal, np.random.default_rng(5), ENTRIES)
    journal.close()
    return files, rows


@given(st.data())
def test_what_is_read_was_written(data: st.DataObject) -> None:
    whole, rows = written()
    files = copied(whole)
    paths = segment_paths(files)
    assert len(paths) > 2
    content = bytes_of(files, data.draw(st.sampled_from(paths)))
    size = len(content)
    at = data.draw(st.integers(0, size - 1))
    if data.draw(st.booleans()):
        stretch = data.draw(st.binary(min_size=1, max_size=200))
    else:  # of another place, where the checksums are right
        other = bytes_of(files, data.draw(st.sampled_from(paths)))
        start = data.draw(st.integers(0, len(other) - 1)) & ~7
        at &= ~7
        stretch = bytes(other[start : start + data.draw(st.integers(1, 2_000))])
    stretch = stretch[: size - at]
    content[at : at + len(stretch)] = np.frombuffer(stretch, np.uint8)
    try:
        journal = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
        left = [locator for locator in rows if locator >> 20 <= journal.tail]
        assert read_rows(journal, left) == [rows[locator] for locator in left]
        for _position, _epoch, _entry in journal.scan(0):
            pass
    except JournalDamaged:
        return
    journal.close()
