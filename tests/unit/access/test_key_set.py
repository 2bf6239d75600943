"""Sets of keys merge in any order, and what was revoked stays so."""

from __future__ import annotations

import itertools

import pytest

from dejaqueue.access.api_keys import ApiKey, new_key
from dejaqueue.access.key_set import FORGET_AFTER_MS, KeySet, key_set_of, unsealed_key_set_of
from dejaqueue.access.roles import Grant, Role
from dejaqueue.access.seal import Seal
from dejaqueue.errors import JournalDamaged, Refused


def key(name: str, ends_ms: int | None = None) -> ApiKey:
    return new_key(name, (Grant(Role.PRODUCE, "a"),), 1, ends_ms)[0]


A, B, C = key("a"), key("b", 5_000), key("c")


def known(*keys: ApiKey) -> KeySet:
    return KeySet({one.id: one for one in keys})


def test_sets_merge_to_the_same_in_any_order() -> None:
    sets = [known(A, B), known(A, B).without(A), known(B, C), known(C).without(C), KeySet()]
    for order in itertools.permutations(sets):
        merged = KeySet()
        for one in order:
            merged = merged.merged(one).merged(one)
        assert set(merged.keys) == {B.id}
        assert merged.revoked == {A.id: None, C.id: None}


def test_a_set_lacks_what_it_neither_has_nor_knows_to_be_revoked() -> None:
    assert known(A).without(A).has_all_of(known(A), 0)
    assert not known(A).has_all_of(known(A).without(A), 0)
    assert not known(A).has_all_of(known(A, B), 0)
    assert KeySet().has_all_of(KeySet(), 0)


def test_what_would_have_ended_a_day_ago_is_not_remembered() -> None:
    revoked = known(A, B).without(A).without(B)
    last_ms = 5_000 + FORGET_AFTER_MS
    assert set(revoked.without_forgotten(last_ms - 1).revoked) == {A.id, B.id}
    assert set(revoked.without_forgotten(last_ms).revoked) == {A.id}
    assert not KeySet().has_all_of(known(B).without(B), last_ms - 1)
    assert KeySet().has_all_of(known(B).without(B), last_ms)


def test_a_document_comes_back_as_it_was() -> None:
    kept = known(A, B, C).without(B)
    assert key_set_of(kept.to_text(None), None) == kept
    assert list(key_set_of(kept.to_text(None), None).keys) == [A.id, C.id]


def test_a_document_that_has_a_revoked_key_does_not_have_it() -> None:
    both = KeySet({A.id: A}, {A.id: None})
    assert key_set_of(both.to_text(None), None).keys == {}


@pytest.mark.parametrize("revoked", ["[]", '{"a": "x"}', '{"a": []}', "7"])
def test_revoked_ids_that_are_none_are_damage(revoked: str) -> None:
    with pytest.raises(JournalDamaged):
        key_set_of(f'{{"version": 2, "keys": [], "revoked": {revoked}}}', None)


def test_a_version_that_is_not_known_is_named() -> None:
    with pytest.raises(Refused, match="version 9, the last known is 2"):
        key_set_of('{"version": 9}', None)


def test_what_verifies_signatures_is_hidden_where_a_cluster_seals() -> None:
    key, _ = new_key("shop", (Grant(Role.ADMIN, "*"),), 0, None, signs=True)
    assert key.signing is not None
    kept, seal = KeySet({key.id: key}), Seal("a secret")
    assert key_set_of(kept.to_text(None), None).keys[key.id] == key
    text = kept.to_text(seal)
    assert key.signing.hex() not in text
    assert key_set_of(text, seal).keys[key.id] == key
    other = unsealed_key_set_of(text).keys[key.id]
    assert other.signing is None, "under another secret the key signs nothing any more"
    assert other.digest == key.digest
