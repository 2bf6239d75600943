"""Bit flips in what a server keeps of replicated journals: records, snapshots, documents.

A broker reads them as of another server's disk, without a copy of its own. That the sick copy of
several is named and rebuilt is for tests/cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import xxhash

from dejaqueue.journal import format as entry_format
from dejaqueue.journal.records import reading, record, snapshot_objects, store
from dejaqueue.journal.segments.snapshots import Manifest
from tests.corruption.apart import found_apart
from tests.corruption.records import RecordImage, record_image
from tests.corruption.rot import Outcome, Rot, spread_flips

FLIPS = 300


@cache
def image() -> RecordImage:
    return record_image()


def newest(topic: str, partition: int) -> Manifest:
    place = Path("objects", "topics", topic, f"{partition:05d}", "snapshots")
    contents: dict[Path, Any] = dict(image().contents())
    path = max(path for path in contents if path.parent == place)
    return Manifest.decode(path, memoryview(contents[path]))


def test_every_flip_is_refused_mended_or_where_nobody_reads() -> None:
    rot = Rot(image())
    for path, at, bit in spread_flips(image(), FLIPS, 7):
        rot.flip(path, at, bit)
    assert rot.tally.wrong == [], rot.tally.text()
    records = rot.tally.by_kind["replicated record"]
    assert records[Outcome.REFUSED] > FLIPS // 4, rot.tally.text()
    assert rot.tally.by_kind["replicated snapshot"][Outcome.MENDED] > 0, rot.tally.text()
    documents = rot.tally.by_kind["replicated document"]
    assert set(documents) == {Outcome.REFUSED}, rot.tally.text()
    assert rot.tally.harmless
    for path, _ in rot.tally.harmless:
        if path.parts[0] == "records":
            _, topic, partition, number = path.parts
            content = image().contents()[path].tobytes()
            found = record.open_record(content, int(number))
            assert found is not None
            assert found.head.position <= newest(topic, int(partition)).position
        else:
            _, _, topic, number, _, name = path.parts
            assert name not in newest(topic, int(number)).parts, path


def _believes_records(patch: pytest.MonkeyPatch) -> None:
    def believes(content: bytes | memoryview, number: int) -> record.Record | None:
        stored = bytes(content[record.CHECKSUM_OFFSET : record.HEADER_BYTES])
        head, body = bytes(content[: record.CHECKSUM_OFFSET]), bytes(content[record.HEADER_BYTES :])
        right = xxhash.xxh3_64_intdigest(head + body).to_bytes(8, "little")
        found = record.open_record(head + right + body, number)
        return None if found is None else found._replace(checksum=int.from_bytes(stored, "little"))

    patch.setattr(reading, "open_record", believes)
    # Of the two checks one is enough.
    patch.setattr(
        entry_format, "verify", lambda view, at, head: entry_format.stored_checksum(view, at)
    )


def _believes_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        snapshot_objects.SnapshotObjects,
        "_verified",
        lambda self, name, part: self._get(self._part_prefix + name),
    )


def _believes_documents(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store, "open_text", lambda path, content: json.loads(bytes(content))["text"])


def _says_nothing_of_damage(patch: pytest.MonkeyPatch) -> None:
    from dejaqueue.journal.records.journal import RecordJournal

    patch.setattr(RecordJournal, "repairs", [])


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "replicated record": _believes_records,
    "replicated snapshot": _believes_snapshots,
    "replicated document": _believes_documents,
}


def search(kind: str) -> bool:
    """Plant the bug of a kind of bytes, and flip bits until one goes wrong."""
    rot = Rot(image())
    with pytest.MonkeyPatch.context() as patch:
        PLANTS[kind](patch)
        return any(_goes_wrong(rot, flip) for flip in spread_flips(image(), 400, 9, only=kind))


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_bug_is_found(kind: str) -> None:
    assert found_apart("tests.corruption.test_records", kind)


def test_a_broker_that_says_nothing_of_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rot = Rot(image())
    _says_nothing_of_damage(monkeypatch)
    for flip in spread_flips(image(), 60, 9, only="replicated snapshot"):
        rot.flip(*flip)
    # The first test would say so: they are in use.
    assert any(
        path.name in newest(path.parts[2], int(path.parts[3])).parts
        for path, _ in rot.tally.harmless
    )


def _goes_wrong(rot: Rot, flip: tuple[Path, int, int]) -> bool:
    try:
        return rot.flip(*flip) is Outcome.WRONG
    except Exception:  # noqa: BLE001 - a traceback is no answer to damage
        return True
