from pathlib import Path

from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.journal_conformance import JournalConformance


class TestSegments(JournalConformance):
    def make_store(self, directory: Path) -> SegmentStore:
        return SegmentStore(directory, segment_bytes=1 << 16)
