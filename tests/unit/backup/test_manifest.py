"""Covers: manifests as bytes and back, and what is refused of one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dejaqueue.backup.manifest import (
    ENTRIES,
    ROWS,
    Manifest,
    PartitionCopy,
    Piece,
    SnapshotCopy,
    Stretch,
)
from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.sealed_text import seal_text

PARTITION = PartitionCopy(
    "orders",
    4711,
    "orders",
    2,
    30,
    SnapshotCopy(20, "{}", {"small-1": Piece("aa", 7)}),
    (
        Stretch(ROWS, 0, 20, 3, 0, None),
        Stretch(ENTRIES, 20, 30, 4, 1_790_000_000_000, Piece("bb", 9)),
    ),
)
MANIFEST = Manifest(
    "20261124T000000.000Z-ab12",
    "9f",
    "",
    1_790_000_000_000,
    1_790_000_000_100,
    "0.1.0",
    Piece("cc", 5),
    (PARTITION, replace(PARTITION, partition=3, snapshot=None)),
    {"keys": "{}"},
    {"0f": "{}"},
    21,
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.decode("m", MANIFEST.encode()) == MANIFEST
    assert MANIFEST.byte_count == 7 + 9 + 5  # each piece once
    assert MANIFEST.describe()["topics"] == 1


def test_a_partition_is_read_as_it_was_listed__and_one_clock_is_not_told() -> None:
    listed = json.loads(json.dumps(PARTITION.to_values()))
    assert PartitionCopy.from_values(listed) == PARTITION
    several = replace(MANIFEST, clocks=3)
    assert Manifest.decode("m", several.encode()) == several
    assert b"clocks" in several.encode()
    assert b"clocks" not in MANIFEST.encode()  # earlier versions do not know it
    followed = replace(MANIFEST, chain="c", logs={"1": 7}, chain_from=3)
    assert Manifest.decode("m", followed.encode()) == followed
    assert b"chain" not in MANIFEST.encode()


def test_what_is_not_as_it_was_written_is_refused_by_name() -> None:
    content = bytearray(MANIFEST.encode())
    content[len(content) // 2] ^= 1
    with pytest.raises(JournalDamaged, match="backups/x.json"):
        Manifest.decode("backups/x.json", bytes(content))
    with pytest.raises(JournalDamaged, match="not what was written"):
        Manifest.decode("m", seal_text('{"format": 1}'))
    with pytest.raises(Refused, match="another format"):
        Manifest.decode("m", seal_text('{"format": 2}'))
