"""Covers: what the schedule of backups remembers over restarts."""

from __future__ import annotations

import pytest

from dejaqueue.broker.backup.schedule_document import DOCUMENT, ScheduleDocument
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryStore

DAY_MS = 86_400_000


def test_times_count_over_restarts() -> None:
    journals = MemoryStore()
    ScheduleDocument(journals, 1_000)
    for hours in range(1, 24):  # a broker that is started anew each hour
        notes = ScheduleDocument(journals, 1_000 + hours * 3_600_000)
        assert not notes.is_verification_due(1_000 + hours * 3_600_000, DAY_MS)
    notes = ScheduleDocument(journals, 1_000 + DAY_MS)
    assert notes.is_verification_due(1_000 + DAY_MS, DAY_MS)
    assert not notes.is_verification_due(1_000 + DAY_MS, 0)
    assert notes.is_sweep_due(1_000 + DAY_MS, DAY_MS)
    notes.verified(1_000 + DAY_MS, is_damaged=True)
    again = ScheduleDocument(journals, 2_000 + DAY_MS)
    assert again.is_damaged
    assert not again.is_verification_due(2_000 + DAY_MS, DAY_MS)
    assert again.is_sweep_due(2_000 + DAY_MS, DAY_MS)
    again.swept(2_000 + DAY_MS)
    again.stored_anew()
    assert not ScheduleDocument(journals, 0).is_damaged
    # A clock that went back far: sooner is better than never.
    assert ScheduleDocument(journals, 0).is_verification_due(0, DAY_MS)


def test_a_document_that_is_none_is_named() -> None:
    journals = MemoryStore()
    journals.store_document(DOCUMENT, "[]")
    with pytest.raises(JournalDamaged, match="document backup-schedule"):
        ScheduleDocument(journals, 0)
