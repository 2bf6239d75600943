"""Covers: data keys over several lives, brokers and master keys; what is lost is named.

Not covered: what they encrypt (tests/unit/journal/segments/test_clear_text.py).
"""

from __future__ import annotations

import json

import pytest

from dejaqueue.errors import EncryptionKeyMissing, JournalDamaged
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.encryption.master_keys import LocalMasterKey

ONE, TWO = LocalMasterKey(b"1" * 32), LocalMasterKey(b"2" * 32)


class Shelf:
    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def data_key_numbers(self) -> list[int]:
        return list(self.texts)

    def load_data_key(self, number: int) -> str | None:
        return self.texts.get(number)

    def store_data_key(self, number: int, text: str) -> None:
        self.texts[number] = text


def test_each_life_has_a_key_of_its_own__and_reads_what_the_others_wrote() -> None:
    shelf = Shelf()
    first = DataKeys(shelf, [ONE], is_new=True)
    beside = DataKeys(shelf, [ONE], is_new=True)  # another broker on the same server
    sealed = first.cipher("log").seal(b"x", b"")
    assert len(shelf.texts) == 2
    assert first.current(0) != beside.current(0)
    later = beside.cipher("log").seal(b"y", b"")
    assert first.cipher("log").open(later, b"") == b"y"  # made since: it is looked up
    assert DataKeys(shelf, [ONE], is_new=False).cipher("log").open(sealed, b"") == b"x"
    assert len(shelf.texts) == 3


def test_a_name_has_one_cipher__so_its_counts_never_begin_again() -> None:
    keys = DataKeys(Shelf(), [ONE], is_new=True)
    assert keys.cipher("a") is keys.cipher("a")
    assert keys.cipher("a").seal(b"x", b"")[-16:] != keys.cipher("a").seal(b"x", b"")[-16:]


def test_a_new_master_key_wraps_all_again__then_the_former_one_may_go() -> None:
    shelf = Shelf()
    sealed = DataKeys(shelf, [ONE], is_new=True).cipher("log").seal(b"x", b"")
    with pytest.raises(
        EncryptionKeyMissing, match=f"{ONE.name}, which was not given; .*{TWO.name}"
    ):
        DataKeys(shelf, [TWO], is_new=False)
    assert len(shelf.texts) == 1
    DataKeys(shelf, [TWO, ONE], is_new=False)
    assert all(TWO.name in text for text in shelf.texts.values())
    assert DataKeys(shelf, [TWO], is_new=False).cipher("log").open(sealed, b"") == b"x"


def test_what_was_always_encrypted_refuses_what_is_not__also_later() -> None:
    new, old = Shelf(), Shelf()
    assert DataKeys(new, [ONE], is_new=True).refuses_plain
    assert DataKeys(new, [ONE], is_new=False).refuses_plain
    assert not DataKeys(old, [ONE], is_new=False).refuses_plain
    assert not DataKeys(old, [ONE], is_new=True).refuses_plain


def test_a_key_that_is_lost_altered_or_put_in_anothers_place_is_named() -> None:
    shelf = Shelf()
    keys = DataKeys(shelf, [ONE], is_new=True)
    sealed = keys.cipher("log").seal(b"x", b"")
    number, text = shelf.texts.popitem()
    with pytest.raises(EncryptionKeyMissing, match=f"data key {number:016x} is missing"):
        DataKeys(shelf, [ONE], is_new=False).cipher("log").open(sealed, b"")
    shelf.texts = {7: text}
    with pytest.raises(JournalDamaged, match="data key 0000000000000007: another one"):
        DataKeys(shelf, [ONE], is_new=False)
    facts = json.loads(text)
    changed = facts | {"wrapped": "AAAA" + facts["wrapped"][4:]}
    shelf.texts = {number: json.dumps(changed)}
    with pytest.raises(EncryptionKeyMissing, match=f"{ONE.name} does not unwrap data key"):
        DataKeys(shelf, [ONE], is_new=False)
    shelf.texts = {number: "{}"}
    with pytest.raises(JournalDamaged, match="not what was written"):
        DataKeys(shelf, [ONE], is_new=False)
