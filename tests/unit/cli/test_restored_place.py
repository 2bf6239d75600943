"""Covers: what is restored into a cluster of record logs lies in the slots that brokers look in.

Not covered: directories of several processes (test_divided_directory.py), restores as such.
"""

from __future__ import annotations

from dejaqueue.catalogue.state import TopicRow
from dejaqueue.cli.restored_place import RestoredPlace
from dejaqueue.cluster.placement import slot_of
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic

SLOTS = 8


def test_topics_lie_where_their_rows_say() -> None:
    records = MemoryRecordStore()
    store = RecordJournalStore(records)
    rows = {
        "wide": TopicRow(Topic("wide", partitions=4, spread=3), 1, start=6),
        "orders": TopicRow(Topic("orders", dead_letter="letters"), 2, start=1),
        "letters": TopicRow(Topic("letters"), 3, start=5),
    }
    RestoredPlace(store).lays_out(rows, SLOTS)
    for name, row in rows.items():
        store.make(f"{name}.{row.number}", row.number)
    found = {name: records.get_object(f"made/{name}.{row.number}") for name, row in rows.items()}
    where = slot_of("orders", rows, SLOTS)
    assert found == {"wide": b"6,7,0", "orders": b"%d" % where, "letters": b"%d" % where}
    store.close()


def test_keys_are_a_document_of_a_store_that_is_not_divided() -> None:
    store = RecordJournalStore(MemoryRecordStore())
    assert not RestoredPlace(store).put_back_keys("{}")
    store.close()
