"""Covers: entries of a journal of records as an archive has those of a log: all in order, as
many as fit, encrypted or not; what was given back is refused; another copy is told from the same.

Not covered: who archives them (test_record_archiver.py, test_catalogue_slices.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dejaqueue.backup.log_pieces import check_slice, owned_entries
from dejaqueue.broker.backup.record_slices import differs, record_slice
from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.encryption.master_keys import LocalMasterKey
from dejaqueue.journal.interface import Entry, Journal
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.journal_conformance import fill

LOG, NUMBER = "7/1", 7 << 16 | 1


@pytest.fixture(params=[False, True], ids=["clear", "encrypted"])
def store(request: pytest.FixtureRequest) -> Iterator[RecordJournalStore]:
    store = RecordJournalStore(MemoryRecordStore())
    if request.param:
        store.encrypt([LocalMasterKey(bytes(range(32)))])
    yield store
    store.close()


def journal_of(store: RecordJournalStore, count: int, seed: int = 1) -> Journal:
    store.make("t")
    journal, random = store.open("t", 1), np.random.default_rng(seed)
    for _ in range(count):
        fill(journal, random, 1, rows=3)
    return journal


def cipher_of(store: RecordJournalStore) -> Cipher | None:
    return None if store.encryption is None else store.encryption.cipher(f"log/{LOG}")


def plain(entry: Entry) -> bytes:
    return b"".join(bytes(one) for one in entry_format.encode(entry, 1, 1, 0, 0).pieces)


def test_all_entries_are_there__at_their_positions(store: RecordJournalStore) -> None:
    journal, cipher = journal_of(store, 10), cipher_of(store)
    one = record_slice(journal, LOG, NUMBER, (2, 9), 1 << 20, cipher)
    assert (one.log, one.after, one.last) == (LOG, 2, 9)
    check_slice(one, "test")
    found = list(owned_entries(one, "test"))
    assert [(number, local) for number, local, _ in found] == [(NUMBER, at) for at in range(3, 10)]
    known = {at: (epoch, entry) for at, epoch, entry in journal.scan(0)}
    for _, local, stored in found:
        decoded = entry_format.decode(stored, 0, cipher=cipher)
        assert decoded.head.epoch == known[local][0]
        assert plain(decoded.entry) == plain(known[local][1])


def test_what_does_not_fit_is_left__but_one_entry_is_always_there(
    store: RecordJournalStore,
) -> None:
    journal, cipher = journal_of(store, 6), cipher_of(store)
    whole = record_slice(journal, LOG, NUMBER, (0, 6), 1 << 20, cipher)
    some = record_slice(journal, LOG, NUMBER, (0, 6), len(whole.content) // 2, cipher)
    assert 1 <= some.last < 6
    assert record_slice(journal, LOG, NUMBER, (3, 6), 1, cipher).last == 4


def test_what_was_given_back_is_refused__and_so_is_a_journal_that_is_closed(
    store: RecordJournalStore,
) -> None:
    journal = journal_of(store, 3)
    journal.close()
    with pytest.raises(Unavailable):
        record_slice(journal, LOG, NUMBER, (0, 3), 1 << 20, cipher_of(store))


def test_an_entry_that_the_journal_does_not_have_is_refused(store: RecordJournalStore) -> None:
    journal = journal_of(store, 3)
    with pytest.raises(JournalDamaged, match="entry 4 was given back"):
        record_slice(journal, LOG, NUMBER, (3, 5), 1 << 20, cipher_of(store))


def test_another_copy_of_a_journal_is_told_from_the_same(store: RecordJournalStore) -> None:
    journal, cipher = journal_of(store, 5), cipher_of(store)
    one = record_slice(journal, LOG, NUMBER, (1, 4), 1 << 20, cipher)
    assert not differs(one, journal, cipher)
    other = RecordJournalStore(MemoryRecordStore())
    another = journal_of(other, 5, seed=2)
    assert differs(one, another, cipher)
    shorter = RecordJournalStore(MemoryRecordStore())
    assert not differs(one, journal_of(shorter, 1), cipher)
    for made in (other, shorter):
        made.close()
