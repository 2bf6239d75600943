"""Covers: appends to several journals, of which one is refused; and one by itself.

Appends that share a log: segments/test_log.py.
"""

from __future__ import annotations

import pytest

from dejaqueue.errors import Fenced, InternalError
from dejaqueue.journal.appending import append_alone, append_together
from dejaqueue.journal.interface import Append
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.journal_conformance import make_ack


def test_what_is_wrong_with_one_keeps_no_other_from_being_made() -> None:
    store, landed = RecordJournalStore(MemoryRecordStore()), list[Append]()
    journals = [store.open("topic", number) for number in range(3)]
    appends = [
        Append(journal, [make_ack(1)], after, 1, landed.append)
        for journal, after in zip(journals, (0, 7, 0), strict=True)
    ]
    append_together(appends)
    assert landed == appends
    assert [one.tail for one in appends] == [1, 0, 1]
    assert [type(one.error) for one in appends] == [type(None), Fenced, type(None)]
    store.close()


def test_a_bug_of_ours_is_the_outcome_of_its_append(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordJournalStore(MemoryRecordStore())
    journal, landed = store.open("topic", 0), list[Append]()

    def broken(*_: object) -> int:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(journal, "append", broken)
    append = Append(journal, [make_ack(1)], 0, 1, landed.append)
    append_alone(append)
    assert isinstance(append.error, InternalError)
    assert "ZeroDivisionError: a bug" in str(append.error)
    assert landed == []  # who appended alone knows
    monkeypatch.undo()
    store.close()
