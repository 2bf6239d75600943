"""Covers: fences: who stores one first has it, what is stored is read back, damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.backup.fence import Fence, put_fence, read_fence
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import JournalDamaged

FIRST = Fence("9f", "a1", 1_795_615_200_000, "dejaq://b:7464")


def test_who_stores_a_fence_first_has_it(tmp_path: Path) -> None:
    bucket = DirectoryBucket(tmp_path)
    assert read_fence(bucket, "9f") is None
    assert put_fence(bucket, FIRST) == FIRST
    assert put_fence(bucket, Fence("9f", "b2", 0, "elsewhere")) == FIRST
    assert put_fence(bucket, FIRST) == FIRST  # the same call again, after a lost answer
    assert read_fence(bucket, "9f") == FIRST
    assert read_fence(bucket, "another") is None


@pytest.mark.parametrize("stored", [b"", b"{}", b"[1]", b'{"store": "9f"}'])
def test_what_is_no_fence_is_named(tmp_path: Path, stored: bytes) -> None:
    bucket = DirectoryBucket(tmp_path)
    bucket.put_new("fences/9f", stored)
    with pytest.raises(JournalDamaged, match="a fence is not what was stored"):
        read_fence(bucket, "9f")
