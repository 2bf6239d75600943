"""Covers: vouchers: what anybody reads of one, and that only who has the secret makes one."""

from __future__ import annotations

import os

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.payloads.voucher_seal import VoucherSeal
from dejaqueue.schema.references import MARK, Reference
from dejaqueue.schema.vouchers import UPLOAD, is_voucher, parse_voucher

SECRET = b"s" * 32
PLAIN = Reference("id/1-t/abc/", 5 << 30, b"d" * 32)
SEALED = PLAIN._replace(key=bytes(range(32)))


@pytest.mark.parametrize("reference", [PLAIN, SEALED])
def test_a_voucher_is_read_by_all_and_opened_by_its_makers(reference: Reference) -> None:
    voucher = VoucherSeal(SECRET).voucher(reference, "vidéos")
    assert is_voucher(voucher)
    parsed = parse_voucher(voucher)
    assert (parsed.byte_count, parsed.digest, parsed.topic) == (5 << 30, b"d" * 32, "vidéos")
    assert VoucherSeal(SECRET).opened(voucher) == reference
    assert not reference.key or reference.key not in voucher


def test_two_vouchers_of_one_payload_differ() -> None:
    seal = VoucherSeal(SECRET)
    assert seal.voucher(SEALED, "t") != seal.voucher(SEALED, "t")


@pytest.mark.parametrize("reference", [PLAIN, SEALED])
def test_a_voucher_that_was_altered_anywhere_is_refused(reference: Reference) -> None:
    seal = VoucherSeal(SECRET)
    voucher = seal.voucher(reference, "t")
    for place in range(len(voucher)):
        altered = bytearray(voucher)
        altered[place] ^= 1
        with pytest.raises(BadRequest, match="voucher: a voucher"):
            seal.opened(bytes(altered))


def test_one_of_other_brokers_or_of_another_kind_is_refused() -> None:
    seal = VoucherSeal(SECRET)
    voucher = VoucherSeal(b"o" * 32).voucher(PLAIN, "t")
    with pytest.raises(BadRequest, match="by this broker or its cluster"):
        seal.opened(voucher)
    upload = seal.voucher(PLAIN._replace(digest=b"", byte_count=0), "t", UPLOAD)
    assert not is_voucher(upload)
    with pytest.raises(BadRequest, match="payload: a voucher"):
        seal.opened(upload, field="payload")
    assert seal.opened(upload, UPLOAD).name == PLAIN.name


def test_what_only_begins_like_one_is_a_payload() -> None:
    voucher = VoucherSeal(SECRET).voucher(PLAIN, "t")
    tricks = [b"", b"text", MARK, MARK + bytes([5]), voucher[:60], MARK + os.urandom(20)]
    assert not any(is_voucher(one) for one in tricks)
