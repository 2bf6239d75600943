"""How an API key looks, and what is kept of it."""

from __future__ import annotations

import hmac
import re

import pytest

from dejaqueue import limits
from dejaqueue.access.api_keys import (
    ApiKey,
    check_name,
    digest_of,
    grants_of,
    id_of,
    new_key,
    signing_of,
)
from dejaqueue.access.roles import Grant, Role
from dejaqueue.errors import BadRequest

GRANTS = (Grant(Role.PRODUCE, "orders.*"), Grant(Role.ADMIN, "*"))


def test_a_key_has_an_id_and_256_random_bits() -> None:
    made = [new_key("shop", GRANTS, 5, None) for _ in range(50)]
    for key, text in made:
        assert re.fullmatch(r"dq_[0-9a-f]{12}_[0-9a-f]{64}", text)
        assert id_of(text) == key.id
        assert len(text) <= limits.API_KEY_BYTES_MAX
    assert len({text for _, text in made}) == len({key.id for key, _ in made}) == 50


def test_what_is_kept_does_not_contain_the_secret() -> None:
    key, text = new_key("shop", GRANTS, 5, 9)
    secret = text.rpartition("_")[2]
    for shown in (
        repr(key),
        str(key),
        str(key.to_dict()),
        str(key.to_stored()),
        repr(key.principal),
    ):
        assert secret not in shown
    for shown in (repr(key), str(key.to_dict()), repr(key.principal)):
        assert key.digest.hex() not in shown
    assert ApiKey.from_stored(key.to_stored()) == key
    assert key.digest == digest_of(text) != digest_of(text[:-1])


def test_a_key_ends_at_its_end() -> None:
    key, _ = new_key("shop", GRANTS, 5, 9)
    assert [key.has_ended(now_ms) for now_ms in (8, 9, 10)] == [False, True, True]
    assert not new_key("shop", GRANTS, 5, None)[0].has_ended(limits.INSTANT_MS_MAX)


@pytest.mark.parametrize("text", ["", "dq", "dq_", "dq_12", "xx_12_34", "12", "é_1_2", "\ud800"])
def test_what_is_no_key_has_no_id_but_a_digest(text: str) -> None:
    assert id_of(text) == ""
    assert len(digest_of(text)) == 32


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "x" * 256, None, 5, "anonymous", "é"])
def test_a_wrong_name_is_refused(name: object) -> None:
    with pytest.raises(BadRequest, match="name"):
        check_name(name)


def test_a_key_is_no_name_and_is_not_shown() -> None:
    _, text = new_key("shop", GRANTS, 5, None)
    with pytest.raises(BadRequest) as caught:
        check_name(text)
    assert text.rpartition("_")[2] not in f"{caught.value}{caught.value.fields()}"


@pytest.mark.parametrize(
    "grants",
    [
        [], None, "produce:*", ["produce"], ["produce:"], ["sing:*"], ["produce:a b"], [5],
        ["PRODUCE:*"], ["produce:[ab]"], ["produce:*"] * 65, ["produce:" + "x" * 256],
        ["consume:own:a"], ["admin:own:*"], ["produce:own:"], ["produce:own:own:a"],
    ],
)  # fmt: skip
def test_wrong_grants_are_refused(grants: object) -> None:
    with pytest.raises(BadRequest, match="grants"):
        grants_of(grants)


def test_grants_are_read_and_written_alike() -> None:
    texts = ["produce:orders.*", "consume:a?", "manage:x", "admin:*", "produce:own:own"]
    assert [str(grant) for grant in grants_of(texts)] == texts


def test_own_goes_with_roles_that_reach_messages_of_senders() -> None:
    for text in ("consume:own:a", "deny:produce:own:a"):
        with pytest.raises(BadRequest, match="own: with produce or manage, and not denied, got: "):
            grants_of([text])
    assert [grant.own for grant in grants_of(["produce:own:a", "manage:own:*", "manage:a"])] == [
        True,
        True,
        False,
    ]


def test_what_verifies_signatures_is_kept_if_it_is_wanted() -> None:
    plain, _ = new_key("shop", grants_of(["admin:*"]), 0, None)
    assert plain.signing is None
    assert "signing" not in plain.to_stored()
    key, text = new_key("shop", grants_of(["admin:*"]), 0, None, signs=True)
    assert key.signing == signing_of(text) != key.digest
    assert ApiKey.from_stored(key.to_stored()) == key
    assert "signing" not in key.to_dict()
    # HMAC takes the digest of a key that is longer than a block: so this one stands for the text.
    wanted = hmac.digest(f"AWS4{text}".encode(), b"20260101", "sha256")
    assert hmac.digest(key.signing, b"20260101", "sha256") == wanted
    with pytest.raises(ValueError, match="32 bytes"):
        ApiKey.from_stored(key.to_stored() | {"signing": "00"})
