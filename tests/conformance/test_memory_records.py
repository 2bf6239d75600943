from pathlib import Path

from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.shared_journal_conformance import SharedJournalConformance


class TestMemoryRecords(SharedJournalConformance):
    def make_records(self, directory: Path) -> MemoryRecordStore:
        if not hasattr(self, "records"):
            self.records = MemoryRecordStore(record_bytes_max=4096)
        return self.records


class TestMemoryRecordsWithoutMirror(TestMemoryRecords):
    def make_store(self, directory: Path) -> RecordJournalStore:
        return RecordJournalStore(
            self.make_records(directory), segment_bytes=1 << 16, mirror_bytes_max=1 << 16
        )

    # There is no directory that could be damaged.
    test_a_copy_that_is_damaged_or_foreign_is_read_again = None  # type: ignore[assignment]
