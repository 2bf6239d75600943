from pathlib import Path

from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.journal_conformance import JournalConformance


class TestMemoryRecords(JournalConformance):
    def make_store(self, directory: Path) -> RecordJournalStore:
        if not hasattr(self, "records"):
            self.records = MemoryRecordStore(record_bytes_max=4096)
        return RecordJournalStore(self.records, mirror=directory, segment_bytes=1 << 16)


class TestMemoryRecordsWithoutMirror(TestMemoryRecords):
    def make_store(self, directory: Path) -> RecordJournalStore:
        if not hasattr(self, "records"):
            self.records = MemoryRecordStore(record_bytes_max=4096)
        return RecordJournalStore(self.records, segment_bytes=1 << 16, mirror_bytes_max=1 << 16)
