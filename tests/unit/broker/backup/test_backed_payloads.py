"""Covers: what of a payload is missing from a listing of the store.

Not covered: reading what a backup refers to (tests/integration/test_backed_payloads.py).
"""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.broker.backup.backed_payloads import missing_objects
from dejaqueue.schema.references import Reference

PART = limits.PART_BYTES
WHOLE = Reference("id/1-t/a", 100, b"d" * 32)
PARTS = Reference("id/1-t/b/", PART + 5, b"d" * 32)


@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_what_is_not_there_or_has_another_length_is_named(key: bytes) -> None:
    more = 16 if key else 0
    whole, parts = WHOLE._replace(key=key), PARTS._replace(key=key)
    stored = {
        "id/1-t/a": 100 + more,
        "id/1-t/b/00000": PART + more,
        "id/1-t/b/00001": 5 + more,
        "id/1-t/b/list": 76 + more,
    }
    assert list(missing_objects(whole, stored)) == []
    assert list(missing_objects(parts, stored)) == []
    assert list(missing_objects(whole, stored | {"id/1-t/a": 99})) == ["id/1-t/a"]
    assert list(missing_objects(parts, {})) == ["id/1-t/b/00000", "id/1-t/b/00001", "id/1-t/b/list"]
    assert list(missing_objects(parts, stored | {"id/1-t/b/00001": 4})) == ["id/1-t/b/00001"]
