"""A seal is of all fields and of one secret, and gives neither away."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from dejaqueue.access.seal import Seal
from dejaqueue.cluster.jetstream_settings import ROUTE_USER, SYSTEM_USER, USER, password

VALUES = {"version": 2, "keys": [{"name": "ä"}], "revoked": {"b": None, "a": 1}}
SECRET = "the secret of a cluster"


def test_a_seal_does_not_depend_on_the_order_of_fields() -> None:
    seal = Seal(SECRET)
    again = json.loads(json.dumps(dict(reversed(seal.on(VALUES).items()))))
    assert again == seal.on(VALUES)
    assert seal.fits(again)
    assert Seal(SECRET).on(VALUES) == seal.on(VALUES)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"keys": []},
        {"keys": [{"name": "a"}]},
        {"revoked": {"a": 1}},
        {"more": 1},
        {"seal": ""},
        {"seal": None},
        {"seal": 1},
        {"seal": "ä" * 64},
        {"seal": "0" * 64},
    ],
)
def test_whatever_is_changed_the_seal_does_not_fit(change: dict[str, object]) -> None:
    seal = Seal(SECRET)
    assert not seal.fits(seal.on(VALUES) | change)


@pytest.mark.parametrize("name", [*VALUES, "seal"])
def test_whatever_is_missing_the_seal_does_not_fit(name: str) -> None:
    sealed = Seal(SECRET).on(VALUES)
    del sealed[name]
    assert not Seal(SECRET).fits(sealed)


def test_a_seal_of_another_secret_does_not_fit() -> None:
    assert not Seal(SECRET + " ").fits(Seal(SECRET).on(VALUES))


def test_the_key_of_a_seal_is_for_nothing_else() -> None:
    """Neither the secret itself nor any password of the servers seals."""
    content = json.dumps(VALUES, sort_keys=True, separators=(",", ":")).encode()
    sealed = Seal(SECRET).on(VALUES)["seal"]
    known = [SECRET, *(password(SECRET, user) for user in (USER, SYSTEM_USER, ROUTE_USER))]
    for key in known:
        assert hmac.digest(key.encode(), content, hashlib.sha256).hex() != sealed
        assert not Seal(key).fits(VALUES | {"seal": sealed}) or key == SECRET


def test_what_is_hidden_is_shown_by_the_same_secret_and_name_alone() -> None:
    value = bytes(range(32))
    hidden = Seal("one").hidden("a", value)
    assert hidden != value
    assert Seal("one").hidden("a", hidden) == value
    assert Seal("one").hidden("b", hidden) != value
    assert Seal("two").hidden("a", hidden) != value
