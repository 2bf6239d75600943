"""Covers: what an archive stores, finds damaged, and deletes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.backup.archive import ORPHAN_MS, Archive
from dejaqueue.backup.backup_id import new_id
from dejaqueue.backup.manifest import Piece
from dejaqueue.errors import BadRequest, JournalDamaged, Refused
from tests.unit.backup.test_manifest import MANIFEST

LATER_MS = 1 << 43


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(str(tmp_path), make=True)


def path_of(root: Path, piece: Piece) -> Path:
    return root / "pieces" / piece.name[:2] / piece.name


def test_a_place_without_backups_is_refused__also_what_is_something_else(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="a place with backups"):
        Archive.open(str(tmp_path))
    for content, text in (("{}", "is not of backups"), ('{"format": 9}', "have format 9")):
        (tmp_path / "dejaq.json").write_text(content)
        with pytest.raises(Refused, match=text):
            Archive.open(str(tmp_path))


def test_a_piece_is_stored_once__and_is_what_its_name_says(
    archive: Archive, tmp_path: Path
) -> None:
    piece = archive.put(b"content")
    assert (archive.put(b"content"), bytes(archive.get(piece, "x", None))) == (piece, b"content")
    path_of(tmp_path, piece).write_bytes(b"consent")
    with pytest.raises(JournalDamaged, match=f"of a: pieces/.*{piece.name} is not what was stored"):
        archive.get(piece, "of a", None)
    archive.put(b"content")  # heals it
    assert bytes(archive.get(piece, "x", None)) == b"content"
    path_of(tmp_path, piece).unlink()
    with pytest.raises(JournalDamaged, match=f"of a: pieces/.*{piece.name} is missing"):
        archive.get(piece, "of a", None)


def test_a_backup_is_there_when_its_manifest_is(archive: Archive) -> None:
    assert (archive.ids(), archive.newest()) == ([], None)
    second = replace(MANIFEST, id="2-b", store="other")
    for manifest in (replace(MANIFEST, id="1-a"), second, second):
        archive.put_manifest(manifest)  # again is fine: the answer may have been lost
    assert archive.ids() == ["1-a", "2-b"]
    assert archive.newest() == second
    older = archive.newest(MANIFEST.store)
    assert older is not None
    assert older.id == "1-a"
    with pytest.raises(Refused, match="another backup 2-b"):
        archive.put_manifest(replace(second, cut_ms=1))
    with pytest.raises(BadRequest, match="one of those"):
        archive.manifest("3-c")


def test_what_is_damaged_of_a_backup_is_named(archive: Archive, tmp_path: Path) -> None:
    kept, lost = archive.put(b"kept"), archive.put(b"lost")
    manifest = replace(MANIFEST, catalogue=kept, partitions=())
    checked: set[str] = set()
    assert (list(archive.damage(manifest, checked)), checked) == ([], {kept.name})
    path_of(tmp_path, lost).unlink()
    [text] = archive.damage(replace(manifest, catalogue=lost))
    assert text.startswith(f"backup {MANIFEST.id}, the catalogue: pieces/")


def test_forgetting_deletes_what_no_backup_names__but_nothing_that_is_young(
    archive: Archive,
) -> None:
    shared, old, orphan = archive.put(b"shared"), archive.put(b"old"), archive.put(b"orphan")
    archive.put_manifest(replace(MANIFEST, id="1-a", catalogue=old, partitions=()))
    archive.put_manifest(replace(MANIFEST, id="2-b", catalogue=shared, partitions=()))
    [young] = [one for one in archive.bucket.objects("pieces/") if one.name.endswith(old.name)]
    archive.forget(["1-a"])
    assert archive.sweep(young.stored_ms + ORPHAN_MS // 2) == 0
    assert archive.sweep(LATER_MS) == 2
    assert archive.ids() == ["2-b"]
    left = [one.name.rpartition("/")[2] for one in archive.bucket.objects("pieces/")]
    assert (left, orphan.name in left) == ([shared.name], False)


def test_a_mark_says_that_a_backup_is_being_taken__and_goes_with_it_or_when_it_is_old(
    archive: Archive,
) -> None:
    assert not archive.is_being_taken("x")
    for name in ("x", "y"):
        archive.take(name)
        assert archive.is_being_taken(name)
    archive.taken("x")
    archive.taken("x")
    assert not archive.is_being_taken("x")
    [mark] = archive.bucket.objects("taking/")
    archive.sweep(mark.stored_ms + ORPHAN_MS // 2)
    assert archive.is_being_taken("y")
    archive.sweep(LATER_MS)
    assert not archive.is_being_taken("y")


def test_nothing_is_deleted_while_a_backup_cannot_be_read(archive: Archive, tmp_path: Path) -> None:
    piece = archive.put(b"x")
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "1-a.json").write_text(json.dumps({"checksum": "0", "text": "{}"}))
    with pytest.raises(JournalDamaged, match=r"1-a\.json"):
        archive.sweep(LATER_MS)
    assert bytes(archive.get(piece, "x", None)) == b"x"


def test_backups_are_kept_by_count_and_age__the_newest_of_a_store_always(archive: Archive) -> None:
    for number in range(1, 6):
        archive.put_manifest(replace(MANIFEST, id=f"{number}", cut_ms=number * 100))
    archive.put_manifest(replace(MANIFEST, id="0", store="other", cut_ms=1))
    now_ms = 1_000
    assert archive.outlived("", now_ms, count=2, age_ms=0) == ["1", "2", "3"]
    assert archive.outlived("", now_ms, count=0, age_ms=650) == ["1", "2", "3"]
    assert archive.outlived(MANIFEST.store, now_ms, count=9, age_ms=1) == ["1", "2", "3", "4"]
    assert archive.outlived("", now_ms, count=0, age_ms=0) == []


class Counted:
    """A bucket that counts requests; `meanwhile` is done before each listing of pieces."""

    def __init__(self, archive: Archive) -> None:
        self.bucket, self.counts = archive.bucket, Counter[str]()
        self.meanwhile: list[Callable[[], object]] = []
        archive.bucket = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        self.counts[name] += 1
        return getattr(self.bucket, name)

    def objects(self, prefix: str) -> Any:
        if prefix == "pieces/" and self.meanwhile:
            self.meanwhile.pop(0)()
        return self.bucket.objects(prefix)


def test_what_is_kept_is_known_from_a_listing__however_many_backups_there_are(
    archive: Archive,
) -> None:
    store, other = "0" * 16, "1" * 16
    ids: list[str] = []
    for number in range(30):
        ids.append(new_id(1_795_490_189_219 + number * 60_000, store, ids[-1] if ids else ""))
        archive.put_manifest(replace(MANIFEST, id=ids[-1], store=store))
    theirs = new_id(1_795_490_189_219 + 30 * 60_000, other, "")
    archive.put_manifest(replace(MANIFEST, id=theirs, store=other))
    counted = Counted(archive)
    now_ms = 1_795_490_189_219 + 30 * 60_000
    assert archive.outlived(store, now_ms, count=0, age_ms=5 * 60_000) == ids[:25]
    assert counted.counts["get"] == 0
    newest = archive.newest(store)
    assert newest is not None
    assert (newest.id, counted.counts["get"]) == (ids[-1], 1)


@pytest.mark.parametrize("looks_before", [0, 1])
def test_a_sweep_beside_a_backup_deletes_nothing_that_it_names(
    archive: Archive, tmp_path: Path, looks_before: int
) -> None:
    piece, orphan = archive.put(b"left by one that broke off"), archive.put(b"orphan")
    for one in (piece, orphan):
        os.utime(path_of(tmp_path, one), (0, 0))
    now_ms = path_of(tmp_path, piece).parent.stat().st_mtime_ns // 1_000_000

    def back_up() -> None:
        assert archive.put(b"left by one that broke off") == piece  # it is there already
        archive.put_manifest(replace(MANIFEST, id="1-a", catalogue=piece, partitions=()))

    counted = Counted(archive)
    counted.meanwhile += [lambda: None] * looks_before
    counted.meanwhile.append(back_up)
    assert archive.sweep(now_ms) == 1
    assert list(archive.damage(archive.manifest("1-a"))) == []
    assert archive.bucket.get(f"pieces/{orphan.name[:2]}/{orphan.name}") is None
