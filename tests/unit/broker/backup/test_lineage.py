"""Covers: which backups a store of journals knows, and how an older copy of it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dejaqueue.broker.backup.lineage import DOCUMENT, Lineage
from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.memory import MemoryStore
from tests.unit.backup.test_manifest import MANIFEST

URL = "file:///backups"


def test_an_older_copy_of_the_journals_is_refused__a_newer_one_goes_on() -> None:
    journals = MemoryStore()
    lineage = Lineage(journals)
    lineage.check(URL, None)
    lineage.begin(URL, "1-a")
    old = journals.load_document(DOCUMENT)
    assert old is not None
    lineage.done(URL, "1-a")
    lineage.begin(URL, "2-b")  # and then the broker was killed
    again = Lineage(journals)
    assert (again.store, again.last(URL)) == (lineage.store, "1-a")
    for known in ("1-a", "2-b"):
        again.check(URL, replace(MANIFEST, id=known))
    journals.store_document(DOCUMENT, old)
    with pytest.raises(Refused, match="these journals are older than backup 2-b at file:///b"):
        Lineage(journals).check(URL, replace(MANIFEST, id="2-b"))


def test_each_store_is_another_one() -> None:
    assert Lineage(MemoryStore()).store != Lineage(MemoryStore()).store


def test_a_document_that_is_none_is_named() -> None:
    journals = MemoryStore()
    journals.store_document(DOCUMENT, "[]")
    with pytest.raises(JournalDamaged, match="document backup"):
        Lineage(journals)
