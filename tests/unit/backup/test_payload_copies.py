"""Copies of payloads beside backups: lists, what is damaged, and what goes.

Not covered: what is copied (tests/integration/test_backed_payloads.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.backup.payload_copies import ORPHAN_MS, PayloadCopies
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import JournalDamaged

LATER_MS = 4_000_000_000_000


@pytest.fixture
def copies(tmp_path: Path) -> PayloadCopies:
    return PayloadCopies(DirectoryBucket(tmp_path))


def test_what_was_copied_is_read_again(copies: PayloadCopies) -> None:
    assert copies.needed("first") is None
    found = {"a/b/c": copies.put("a/b/c", b"content")}
    copies.put_list("first", found)
    assert copies.needed("first") == found == copies.known()
    assert copies.sizes() == {"a/b/c": 7}
    assert copies.get("a/b/c", found["a/b/c"]) == b"content"
    assert list(copies.damage("first", set())) == []
    assert list(copies.damage("other", set())) == []


def test_damage_is_named(copies: PayloadCopies, tmp_path: Path) -> None:
    copies.put_list("first", {name: copies.put(name, b"content") for name in ("a", "b", "c")})
    (tmp_path / "payloads/objects/a").unlink()
    (tmp_path / "payloads/objects/b").write_bytes(b"Content")
    checked: set[str] = set()
    assert list(copies.damage("first", checked)) == [
        "backup first: payloads/objects/a is missing",
        "backup first: payloads/objects/b is not what was copied",
    ]
    assert checked == {"c"}


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"objects": {"a": [1, "x"]}, "digest": ""}'])
def test_a_list_that_is_another_one_is_refused(
    copies: PayloadCopies, tmp_path: Path, content: bytes
) -> None:
    copies.put_list("first", {})
    (tmp_path / "payloads/lists/first.json").write_bytes(content)
    with pytest.raises(JournalDamaged, match="lists/first.json is not what was written"):
        copies.needed("first")
    assert copies.known() == {}
    [damage] = copies.damage("first", set())
    assert "lists/first.json" in damage


def test_what_no_backup_needs_goes_when_it_is_old(copies: PayloadCopies) -> None:
    both = {name: copies.put(name, b"content") for name in ("a", "b")}
    copies.put_list("first", both)
    copies.put_list("second", {"b": both["b"]})
    assert copies.sweep({"second"}, 0) == 0
    assert copies.backups() == ["second"]
    assert copies.sweep({"second"}, LATER_MS + ORPHAN_MS) == 1
    assert set(copies.sizes()) == {"b"}
