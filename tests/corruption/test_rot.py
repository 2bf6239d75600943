"""Every bit flip is told, mended or harmless, and nobody gets bytes that nobody sent.

`make reliability` flips some ten thousand bits; here are some hundred, and planted bugs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from dejaqueue.journal import format as entry_format
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments import recovery, segment, snapshots, store
from dejaqueue.journal.segments.files import read_file
from dejaqueue.journal.segments.proof import FLOOR_NAME, MARK_NAME
from dejaqueue.journal.segments.snapshots import Manifest
from tests.corruption.apart import found_apart
from tests.corruption.images import rich_image
from tests.corruption.rot import FileImage, Outcome, Rot, kind_of, spread_flips

FLIPS = 350


@cache
def image() -> MemoryFileSystem:
    return rich_image()


def test_the_image_has_everything_in_it() -> None:
    names = {kind_of(path) for path, _, _ in spread_flips(FileImage(image()), 100, 1)}
    assert names >= {"segment", "snapshot manifest", "snapshot part", "keys.json"}


def test_every_flip_is_told_mended_or_harmless() -> None:
    rot = Rot(FileImage(image()))
    for path, at, bit in spread_flips(FileImage(image()), FLIPS, 7):
        rot.flip(path, at, bit)
    assert rot.tally.wrong == [], rot.tally.text()
    found = sum(rot.tally.by_kind.values(), start=type(next(iter(rot.tally.by_kind.values())))())
    assert found[Outcome.REFUSED] > FLIPS // 4, rot.tally.text()
    assert found[Outcome.MENDED] > 0, rot.tally.text()


def test_every_flip_in_what_is_encrypted_is_told_mended_or_harmless() -> None:
    sealed = FileImage(rich_image(is_encrypted=True), is_encrypted=True)
    rot = Rot(sealed)
    for path, at, bit in spread_flips(sealed, FLIPS // 2, 7):
        rot.flip(path, at, bit)
    assert rot.tally.wrong == [], rot.tally.text()
    assert rot.tally.by_kind["data key"][Outcome.REFUSED] > 0, rot.tally.text()
    assert rot.tally.by_kind["segment"][Outcome.REFUSED] > 10, rot.tally.text()


def test_what_is_harmless_lies_in_bytes_that_nobody_reads() -> None:
    """They lie in parts of the older snapshot that the newest one does not share, and between the
    two copies of a mark or of a floor."""
    rot = Rot(FileImage(image()))
    for path, at, bit in spread_flips(FileImage(image()), FLIPS, 8):
        rot.flip(path, at, bit)
    assert rot.tally.harmless
    for path, at in rot.tally.harmless:
        if kind_of(path) in {MARK_NAME, FLOOR_NAME}:
            assert at % 4096 >= 64, (path, at)
            continue
        assert kind_of(path) == "snapshot part", path
        manifest = max(name for name in image().names(path.parents[1]) if "manifest" in name)
        newest = Manifest.decode(path, read_file(image(), path.parents[1] / manifest))
        assert path.name not in newest.parts


def _believes_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        entry_format, "verify", lambda view, at, head: entry_format.stored_checksum(view, at)
    )


def _believes_snapshots(patch: pytest.MonkeyPatch) -> None:
    shelf = snapshots.SnapshotFiles
    patch.setattr(
        shelf,
        "_verified",
        lambda self, name, part: read_file(self._files, self._parts / name),
    )


def _believes_documents(patch: pytest.MonkeyPatch) -> None:
    import json

    def open_text(path: object, content: object) -> str:
        return str(json.loads(bytes(content))["text"])  # type: ignore[call-overload]

    patch.setattr(store, "open_text", open_text)


def _believes_no_proof_of_the_tail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_check_mark", lambda segment, end, mark: None)
    patch.setattr(recovery, "_check_reach", lambda directory, segments, snapshot, mark: None)
    patch.setattr(recovery, "_check_complete", lambda segment, memory, end, last: None)


def _cuts_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    _believes_no_proof_of_the_tail(patch)
    patch.setattr(recovery, "_check_torn", lambda segment, memory, end: None)


def _says_nothing_of_damage(patch: pytest.MonkeyPatch) -> None:
    from dejaqueue.journal.segments.journal import SegmentJournal

    patch.setattr(SegmentJournal, "repairs", [])


def _believes_old_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment.Segment, "verify", lambda self, places: None)


PLANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "entries": (_believes_entries, "segment"),
    "snapshots": (_believes_snapshots, "snapshot part"),
    "documents": (_believes_documents, "keys.json"),
    "middle": (_cuts_in_the_middle, "segment"),
    "tail": (_believes_no_proof_of_the_tail, "segment"),
}


def search(name: str) -> bool:
    """Plant a bug, and flip bits until one goes wrong."""
    plant, kind = PLANTS[name]
    rot = Rot(FileImage(image()))
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return any(
            _goes_wrong(rot, flip) for flip in spread_flips(FileImage(image()), 400, 9, only=kind)
        )


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert found_apart("tests.corruption.test_rot", name)


def test_a_broker_that_says_nothing_of_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rot = Rot(FileImage(image()))
    flips = spread_flips(FileImage(image()), 400, 9, only="snapshot part")
    _says_nothing_of_damage(monkeypatch)
    outcomes = {rot.flip(*flip) for flip, _ in zip(flips, range(40), strict=False)}
    assert Outcome.MENDED not in outcomes


def _goes_wrong(rot: Rot, flip: tuple[object, int, int]) -> bool:
    try:
        return rot.flip(*flip) is Outcome.WRONG  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - a traceback is no answer to damage
        return True
