"""Covers: what a directory knows of being a standby's is read as it was stored; damage is named."""

from __future__ import annotations

import pytest

from dejaqueue.broker.standby.record import DOCUMENT, StandbyRecord, StandbyState
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryStore


def test_a_record_is_read_as_it_was_stored() -> None:
    store = MemoryStore()
    assert StandbyRecord.load(store) is None
    record = StandbyRecord(
        "a1",
        StandbyState.FOLLOWING,
        "9f",
        "c0",
        strands={"c0/x": (7, "d1"), "c0/y": (0, "")},
        logs={"own": 3, "1/0": 5},
        at_ms=1_795_615_200_000,
        data_keys={"00000000000000ab": "wrapped"},
        is_astray=True,
    )
    record.save(store)
    assert StandbyRecord.load(store) == record


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"id": "a", "state": "flying"}'])
def test_what_is_none_is_named(text: str) -> None:
    store = MemoryStore()
    store.store_document(DOCUMENT, text)
    with pytest.raises(JournalDamaged, match="document standby"):
        StandbyRecord.load(store)
