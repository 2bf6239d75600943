"""Covers: changes of a catalogue to which several processes append, as an archive has them: all of
them in order, encrypted or not, also behind a snapshot; and what was dropped is refused.

Not covered: who archives them (test_strand_archiver.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.backup.log_pieces import check_slice
from dejaqueue.broker.backup.catalogue_slices import CatalogueSlices
from dejaqueue.catalogue.changes import MadeTopic, from_bytes
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog, snapshot_of
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.encryption.master_keys import LocalMasterKey
from dejaqueue.journal.processes import ProcessStore, prepare
from dejaqueue.journal.segments.log_turn import LogSlice
from dejaqueue.journal.segments.store import OWN_NAME, cipher_name
from dejaqueue.model import Topic


@pytest.fixture(params=[False, True], ids=["clear", "encrypted"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ProcessStore]:
    prepare(tmp_path, 4)[0].release()
    store = ProcessStore(tmp_path, patience_seconds=5.0)
    if request.param:
        store.encrypt([LocalMasterKey(bytes(range(32)))])
    yield store
    store.close()


def made(log: CatalogueLog, *names: str) -> None:
    for name in names:
        log.change(lambda name=name: MadeTopic(Topic(name), 0))  # type: ignore[misc]


def cipher_of(store: ProcessStore) -> Cipher | None:
    return None if store.encryption is None else store.encryption.cipher(cipher_name(OWN_NAME))


def slices_of(store: ProcessStore) -> CatalogueSlices:
    records = store.second_records()
    return CatalogueSlices(lambda: records.open(JOURNAL, 0), cipher_of(store), records.close)


def names_in(one: LogSlice, cipher: Cipher | None) -> list[str]:
    check_slice(one, "test")
    at, found = 0, []
    while at < len(one.content):
        decoded = entry_format.decode(one.content, at, cipher=cipher)
        found.append(from_bytes(bytes(decoded.entry.extra)).name)
        assert entry_format.owner_of(one.content, at) == (0, one.after + len(found))
        at += decoded.byte_count
    return found


def test_changes_of_others_are_there__by_their_revisions(store: ProcessStore) -> None:
    log = CatalogueLog(store)
    slices = slices_of(store)
    assert slices.tail() == 0
    made(log, "a", "b", "c")
    assert slices.tail() == 3
    one = slices.slice(0, 3, 1 << 20)
    assert (one.log, one.after, one.last) == (OWN_NAME, 0, 3)
    assert names_in(one, cipher_of(store)) == ["a", "b", "c"]
    made(log, "d")
    assert names_in(slices.slice(1, 2, 1 << 20), cipher_of(store)) == ["b"]
    assert slices.tail() == 4
    small = slices.slice(1, 4, 1)
    assert (small.last, names_in(small, cipher_of(store))) == (2, ["b"])
    if store.encryption is not None:
        assert b"MadeTopic" not in bytes(one.content)
        assert b'"a"' not in bytes(one.content)
    log.close()
    slices.close()
    slices.close()


def test_what_a_snapshot_covers_may_be_gone__and_is_refused(store: ProcessStore) -> None:
    log = CatalogueLog(store)
    slices = slices_of(store)
    for turn in range(3):
        made(log, *(f"t{turn}-{number}" for number in range(3)))
        assert slices.tail() == 3 * turn + 3
        state = log.copied()
        log.close()
        journal = store.open(JOURNAL, 0)
        journal.put_snapshot(state.revision, *snapshot_of(state))
        journal.truncate(state.revision)
        journal.close()
    log = CatalogueLog(store)
    made(log, "later")
    fresh = slices_of(store)
    assert slices.tail() == fresh.tail() == 10
    assert names_in(slices.slice(9, 10, 1 << 20), cipher_of(store)) == ["later"]
    with pytest.raises(JournalDamaged):
        fresh.slice(0, 10, 1 << 20)
    log.close()
    slices.close()
    fresh.close()
