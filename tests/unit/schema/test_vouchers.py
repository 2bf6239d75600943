"""Covers: what is a voucher in its form, and what anybody reads of one.

Not covered: whether it is genuine (tests/unit/payloads/test_voucher_seal.py).
"""

from __future__ import annotations

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.schema.references import MARK
from dejaqueue.schema.vouchers import (
    SEALED_BYTES_MIN,
    UPLOAD,
    VOUCHER,
    is_voucher,
    parse_voucher,
    voucher_head,
)


def test_its_head_is_read_and_the_rest_is_not() -> None:
    sealed = b"s" * SEALED_BYTES_MIN
    content = voucher_head(VOUCHER, 5 << 30, b"d" * 32, "videos") + sealed
    assert is_voucher(content)
    found = parse_voucher(content)
    assert found == (5 << 30, b"d" * 32, "videos", sealed)


def test_what_is_too_short_or_of_another_kind_is_none() -> None:
    head = voucher_head(VOUCHER, 1, b"d" * 32, "t")
    upload = voucher_head(UPLOAD, 1, b"d" * 32, "t") + b"s" * SEALED_BYTES_MIN
    for content in (b"", MARK, head, head + b"s" * (SEALED_BYTES_MIN - 1), upload):
        assert not is_voucher(content)
        with pytest.raises(BadRequest, match="voucher: a voucher"):
            parse_voucher(content)
