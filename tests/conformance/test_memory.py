from pathlib import Path

from dejaqueue.journal.memory import MemoryStore
from dejaqueue.testing.journal_conformance import JournalConformance


class TestMemory(JournalConformance):
    durable = False

    def make_store(self, directory: Path) -> MemoryStore:
        return MemoryStore(segment_bytes=1 << 16)
