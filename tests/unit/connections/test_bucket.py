"""Covers: a bucket in a directory.

Not covered: object stores (test_object_bucket.py), and URLs (test_bucket_urls.py).
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import Unavailable
from tests.backups import check_bucket


def test_objects_of_a_directory_are_stored_once(tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    check_bucket(DirectoryBucket(root))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")]
    assert {mode & 0o077 for mode in modes} == {0}  # for this user alone


def test_what_is_deleted_while_it_is_listed_is_left_out(tmp_path: Path) -> None:
    bucket = DirectoryBucket(tmp_path)
    for name in ("p/a", "p/b", "p/c"):
        bucket.put_new(name, b"1")
    listed = bucket.objects("")
    assert next(listed).name == "p/a"
    bucket.delete(["p/b"])
    assert [one.name for one in listed] == ["p/c"]


def test_what_was_being_written_when_a_process_died_is_no_object(tmp_path: Path) -> None:
    bucket = DirectoryBucket(tmp_path)
    bucket.put_new("pieces/a", b"1")
    (tmp_path / "pieces" / ".draft-1-1").write_bytes(b"half")
    assert [one.name for one in bucket.objects("")] == ["pieces/a"]


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be used"):
        DirectoryBucket(tmp_path / "file").put_new("a", b"")


def test_two_that_write_the_same_at_once_do_not_meet(tmp_path: Path) -> None:
    """Brokers of a cluster store the same content under the same name."""
    first, second = DirectoryBucket(tmp_path), DirectoryBucket(tmp_path)
    with first._draft(tmp_path / "a", b"1") as draft, second._draft(tmp_path / "a", b"1") as other:
        assert draft != other
        draft.replace(tmp_path / "a")
        other.replace(tmp_path / "a")
    assert first.get("a") == b"1"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Directories that were synced, in their order."""
    found: list[Path] = []
    fsync = os.fsync

    def noting(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            found.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    return found


def test_directories_above_are_synced_while_they_may_be_new(
    tmp_path: Path, synced: list[Path]
) -> None:
    root = tmp_path.resolve() / "bucket"
    bucket = DirectoryBucket(root)
    bucket.put("a/b/c", b"1")
    assert synced == [root / "a/b", root / "a", root, tmp_path.resolve()]
    synced.clear()
    bucket.put("a/b/d", b"1")
    bucket.put("a/e/f", b"1")
    assert synced == [root / "a/b", root / "a/e", root / "a"]
    synced.clear()
    shutil.rmtree(root / "a")
    bucket.put("a/b/c", b"1")
    assert synced == [root / "a/b", root / "a", root]


def test_what_is_put_ahead_is_named_for_good_with_what_follows_it(
    tmp_path: Path, synced: list[Path]
) -> None:
    root = tmp_path.resolve()
    bucket = DirectoryBucket(root)
    bucket.put_ahead("p/1", b"1")
    bucket.put_ahead("p/2", b"2")
    assert (bucket.get("p/1"), synced) == (b"1", [])
    bucket.put("p/list", b"12")
    assert synced[:2] == [root / "p", root]
