"""A cache of appends that the mirror lacks, read from the server; the latest reads are kept.

Room: journal. Any thread.
Holds: what is here was checked against record, chain and append index; memory is bounded.
See: mirror.py; journal.py, which asks here for what is not there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy.typing as npt

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.encryption.clear_budget import ClearBudget
from dejaqueue.journal.memory import MemoryContent, MemoryFile
from dejaqueue.journal.records.append_index import ReadCursor
from dejaqueue.journal.records.mirror import covers
from dejaqueue.journal.records.reading import CheckedRecords, WholeAppend
from dejaqueue.journal.segments.clear_text import ClearTexts
from dejaqueue.journal.segments.segment import HEAD_BYTES, TAIL_BYTES, Segment, SegmentList

Appends: TypeAlias = npt.NDArray[Any]

BYTES_MAX: Final = 64 << 20
SEGMENTS_MAX: Final = 1024
RUN_BYTES_MAX: Final = 8 << 20
"""Bytes up to which appends that lie side by side are read in one request."""


class AppendCache:
    """Appends in memory, as small segments.

    Attributes:
        listed: those that were read last, for whoever does not wait for others to be read.
    """

    def __init__(
        self, checked: CheckedRecords, bytes_max: int = BYTES_MAX, cipher: Cipher | None = None
    ) -> None:
        # What is decrypted goes with its append, of which there are not too many.
        self._clear_texts: ClearTexts | None = None
        if cipher is not None:
            self._clear_texts = ClearTexts(cipher, ClearBudget(), lambda _: None)
        self._checked, self._bytes_max = checked, bytes_max
        self._guard = threading.Lock()
        self._kept: OrderedDict[int, Segment] = OrderedDict()
        self.listed = SegmentList(())
        self._bytes = 0
        self.record_count = 0
        """Records read from the server since the start; for metrics."""

    def segments_with(self, appends: Appends) -> SegmentList:
        """Segments in which these appends (rows of the append index, in order) are.

        Raises:
            JournalDamaged, Unavailable.
        """
        with self._guard:
            there = covers(self.listed, appends["position"])
            for run in _runs(appends[~there]):
                self._fetch(run)
            segments = self._list()
            if self._shrink():
                self.listed = self._list()
            else:
                self.listed = segments
            return segments

    def _list(self) -> SegmentList:
        return SegmentList(tuple(self._kept[first] for first in sorted(self._kept)))

    def _fetch(self, run: Appends) -> None:
        first, last = run[0], run[-1]
        names = ("number", "chain", "position", "entry_chain")
        stand = ReadCursor(*(int(first[name]) for name in names))
        end = int(last["number"]) + int(last["parts"]) - 1
        wholes = [one for one in self._checked.appends(stand, end) if isinstance(one, WholeAppend)]
        self.record_count += end - stand.number + 1
        if not wholes or wholes[-1].after.position != last["position"] + last["entries"]:
            raise JournalDamaged(f"{self._checked.place}, record {end}: is not the one known here")
        segment = _segment_of(wholes, stand.entry_chain, self._clear_texts)
        self._kept[segment.first] = segment
        self._bytes += segment.byte_count

    def _shrink(self) -> bool:
        """The oldest go; lists in use keep their memory. True if any went."""
        count = len(self._kept)
        while self._kept and (self._bytes > self._bytes_max or len(self._kept) > SEGMENTS_MAX):
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.byte_count
        return len(self._kept) < count


def _runs(appends: Appends) -> list[Appends]:
    """Appends that lie side by side, together, up to RUN_BYTES_MAX."""
    runs: list[Appends] = []
    start, byte_count = 0, 0
    ends = appends["position"] + appends["entries"]
    for place, size in enumerate(appends["byte_count"].tolist()):
        apart = place > start and ends[place - 1] != appends["position"][place]
        if place > start and (apart or byte_count + size > RUN_BYTES_MAX):
            runs.append(appends[start:place])
            start, byte_count = place, 0
        byte_count += size
    if start < len(appends):
        runs.append(appends[start:])
    return runs


def _segment_of(wholes: list[WholeAppend], chain: int, clear_texts: ClearTexts | None) -> Segment:
    byte_count = HEAD_BYTES + sum(len(one.body) for one in wholes) + TAIL_BYTES
    path = Path(f"fetched-{wholes[0].position}")
    file = MemoryFile(path, MemoryContent())
    file.allocate(byte_count)
    segment = Segment(path, wholes[0].position, chain, byte_count, clear_texts)
    segment.attach(file)
    file.write([one.body for one in wholes], HEAD_BYTES)
    offset = HEAD_BYTES
    for whole in wholes:
        for one in whole.entries:
            segment.add(offset, one.kind, one.rows, one.byte_count, one.checksum)
            offset += one.byte_count
    return segment
