"""Covers: what the strands of several processes have together: gaps, overlaps, cuts that count; and
what an archive says of them.

Not covered: how pieces come to be (tests/unit/broker/backup/test_strand_archiver.py), and entries
in them (tests/unit/broker/backup/test_strand_tail.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.backup.manifest import Manifest
from dejaqueue.backup.strands import (
    LogCut,
    StrandIndex,
    cut_of,
    cut_order,
    last_instant,
    last_pieces,
    pieces_of,
    strand_name,
    strands_of,
    stretch_of,
)
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.journal.segments.log_turn import read_slice
from dejaqueue.testing.journal_conformance import fill

CHAIN = "00000000000000ab"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(str(tmp_path), make=True)


@pytest.fixture
def log() -> ShardLog:
    """Ten entries."""
    store = MemoryStore(shards=1)
    journal, random = store.open("t", 0), np.random.default_rng(1)
    for _ in range(10):
        fill(journal, random, 1, rows=2)
    (log,) = store.open_logs().values()
    assert log.tail == 10
    return log


def manifest_of(archive: Archive, **logs: int) -> Manifest:
    catalogue = archive.put(b"catalogue")
    names = {name.removeprefix("log"): end for name, end in logs.items()}
    return Manifest("b", "s", "", 5, 5, "1", catalogue, chain=CHAIN, logs=names, in_strands=True)


class Strand:
    """Stores pieces of entries of one log, which are called by several names."""

    def __init__(self, archive: Archive, process: str, log: ShardLog) -> None:
        self.log, self.name = log, strand_name(CHAIN, process)
        self._archive, self._previous, self._number = archive, "", 0
        self._reached: dict[str, int] = {}

    def put(self, *bounds: tuple[str, int, int], cut: LogCut | None = None) -> None:
        slices = tuple(
            read_slice(name, self.log, after, last, 1 << 20) for name, after, last in bounds
        )
        self._reached |= {name: last for name, _, last in bounds}
        self._number += 1
        at_ms, ends = (0, {}) if cut is None else (cut.at_ms, cut.ends)
        piece = LogPiece(
            self.name,
            self._number,
            self._previous,
            "s",
            at_ms,
            slices,
            dict(self._reached),
            ends=ends,
            clocks=1 if cut is None else cut.clocks,
        )
        stored = piece.encode()
        self._previous = digest_of(stored)
        path = f"chains/{self.name}/{self._number:012d}"
        assert self._archive.bucket.put_new(path, stored)


def index_of(archive: Archive, manifest: Manifest) -> StrandIndex:
    index = StrandIndex(manifest)
    for _, piece in pieces_of(strands_of(archive.bucket, CHAIN)):
        index.add(piece)
    return index


def test_a_log_goes_on_in_another_strand__what_is_in_both_counts_once(
    archive: Archive, log: ShardLog
) -> None:
    one, other = Strand(archive, "process-1", log), Strand(archive, "process-2", log)
    one.put(("3", 2, 5))
    other.put(("3", 5, 7), ("4", 0, 1))
    other.put(("3", 7, 9))
    one.put(("3", 8, 10))
    index = index_of(archive, manifest_of(archive, log3=3))
    assert index.covered() == {"3": 10, "4": 1}
    assert [strand.name for strand in strands_of(archive.bucket, CHAIN)] == [one.name, other.name]
    found = {
        strand.name: piece.number
        for strand, piece in last_pieces(strands_of(archive.bucket, CHAIN))
    }
    assert found == {one.name: 2, other.name: 2}


def test_a_gap_is_refused_by_the_name_of_the_log(archive: Archive, log: ShardLog) -> None:
    one = Strand(archive, "process-1", log)
    one.put(("3", 2, 5))
    one.put(("3", 6, 9), cut=LogCut(50, {"3": 9}))
    manifest = manifest_of(archive, log3=3)
    index = index_of(archive, manifest)
    with pytest.raises(JournalDamaged, match="entries 6 to 6 of log 3 are missing"):
        index.covered()
    told: list[str] = []
    assert index.covered(told.append) == {"3": 5}
    assert archive.chain_damage(manifest) == (told, 2)
    behind = index_of(archive, manifest_of(archive, log3=1))
    with pytest.raises(JournalDamaged, match="entries 2 to 2 of log 3 are missing"):
        behind.covered()


def test_a_cut_counts_when_all_that_is_before_it_is_there(archive: Archive, log: ShardLog) -> None:
    one, other = Strand(archive, "process-1", log), Strand(archive, "process-2", log)
    manifest = manifest_of(archive, log3=1, log4=0, log9=8)
    one.put(("3", 1, 3), cut=LogCut(100, {"3": 2, "4": 0, "9": 8}))
    one.put(("3", 3, 5), cut=LogCut(200, {"3": 5, "4": 2, "9": 8}))
    one.put(cut=LogCut(190, {"3": 5, "4": 3, "9": 8}))  # a clock was put right
    index = index_of(archive, manifest)
    assert index.last_cut(index.covered()) == LogCut(100, {"3": 2, "4": 0, "9": 8})
    assert last_instant(archive.bucket, manifest) == archive.reach_ms(manifest) == 100
    other.put(("4", 0, 2))
    assert archive.reach_ms(manifest) == 200
    other.put(("4", 2, 4))
    index = index_of(archive, manifest)
    covered = index.covered()
    found = [
        index.last_cut(covered, until_ms, last_ms)
        for until_ms, last_ms in ((None, None), (100, None), (101, None), (400, None), (None, 150))
    ]
    assert [one and one.at_ms for one in found] == [190, 100, 200, 190, 100]
    assert index.last_cut(covered, None, 50) is None
    assert archive.chain_damage(manifest) == ([], 5)


def test_of_a_strand_that_is_lost__no_cut_counts_that_needs_it(
    archive: Archive, log: ShardLog
) -> None:
    one, other = Strand(archive, "process-1", log), Strand(archive, "process-2", log)
    other.put(("4", 0, 2))
    one.put(("3", 0, 2), cut=LogCut(100, {"3": 2, "4": 1}))
    one.put(cut=LogCut(200, {"3": 2, "4": 2}))
    manifest = manifest_of(archive, log3=0)
    assert archive.reach_ms(manifest) == 200
    archive.bucket.delete([f"chains/{other.name}/{1:012d}"])
    index = index_of(archive, manifest)
    assert index.last_cut(index.covered()) is None
    assert archive.reach_ms(manifest) == manifest.cut_ms


def test_a_slice_of_nothing_says_where_a_log_begins(archive: Archive, log: ShardLog) -> None:
    one = Strand(archive, "process-1", log)
    one.put(("3", 0, 1), cut=LogCut(100, {"3": 1, "4": 6}))
    manifest = manifest_of(archive, log3=0)
    assert index_of(archive, manifest).covered() == {"3": 1}
    empty = read_slice("4", log, 5, 6, 1)._replace(after=6, content=memoryview(b""))
    index = index_of(archive, manifest)
    index.add(LogPiece("c", 9, "", "s", 0, (empty,), {"4": 6}))
    assert index.covered() == {"3": 1, "4": 6}


def test_strands_go_with_their_backups(archive: Archive, log: ShardLog) -> None:
    Strand(archive, "process-1", log).put(("3", 0, 1), cut=LogCut(100, {"3": 1}))
    manifest = manifest_of(archive, log3=0)
    archive.put_manifest(manifest)
    assert Manifest.decode("b", manifest.encode()) == manifest
    archive.sweep(1_000_000)
    assert len(strands_of(archive.bucket, CHAIN)) == 1
    archive.forget(["b"])
    archive.sweep(1_000_000)
    assert strands_of(archive.bucket, CHAIN) == []


def test_a_piece_that_is_damaged_ends_its_strand_alone(archive: Archive, log: ShardLog) -> None:
    one, other = Strand(archive, "process-1", log), Strand(archive, "process-2", log)
    for number in range(3):
        one.put(("3", number, number + 1))
    other.put(("4", 0, 2))
    path = f"chains/{one.name}/{2:012d}"
    stored = archive.bucket.get(path)
    assert stored is not None
    archive.bucket.put(path, stored[:-1] + bytes([stored[-1] ^ 1]))
    told: list[str] = []
    strands = strands_of(archive.bucket, CHAIN)
    found = [(strand.name, piece.number) for strand, piece in pieces_of(strands, told.append)]
    assert found == [(one.name, 1), (other.name, 1)]
    assert len(told) == 1
    with pytest.raises(JournalDamaged):
        list(pieces_of(strands))


def test_a_cut_counts_without_one_before_it__whose_topic_is_gone(
    archive: Archive, log: ShardLog
) -> None:
    """Entries of a topic that was deleted may never come; later cuts, by the catalogue, lack it."""
    one = Strand(archive, "a", log)
    manifest = manifest_of(archive, log3=0, own=0)
    one.put(("3", 0, 2), ("own", 0, 1), cut=LogCut(100, {"3": 2, "9": 9, "own": 1}, 3))
    one.put(("3", 2, 4), ("9", 3, 4), cut=LogCut(110, {"3": 4, "9": 10, "own": 1}, 3))
    assert archive.reach_ms(manifest) == 5
    one.put(("3", 4, 5), ("9", 8, 9), ("own", 1, 2), cut=LogCut(120, {"3": 5, "own": 2}, 2))
    index = index_of(archive, manifest)
    found = index.last_cut(index.covered())
    assert found == LogCut(120, {"3": 5, "own": 2}, 2)
    assert index.clocks == 3
    assert archive.reach_ms(manifest) == 120
    assert archive.chain_damage(manifest)[0] == []


def test_cuts_of_strands_and_of_one_chain() -> None:
    piece = LogPiece("c", 2, "ab", "s", 0, (), {"own": 3, "1": 9})
    assert cut_of(piece) is None
    assert cut_of(replace(piece, at_ms=7)) == LogCut(7, {"own": 3, "1": 9})
    said = replace(piece, at_ms=7, ends={"own": 3, "2": 5}, clocks=2)
    assert cut_of(said) == LogCut(7, {"own": 3, "2": 5}, 2)
    # A topic is gone with the later one.
    cuts = [LogCut(5, {"own": 4, "1": 1}), LogCut(9, {"own": 3, "1": 9, "2": 9}), LogCut(1, {})]
    assert [one.at_ms for one in sorted(cuts, key=cut_order)] == [1, 9, 5]


def test_how_far_entries_follow_each_other() -> None:
    assert stretch_of([], 3) == (3, None)
    assert stretch_of([(0, 2), (2, 5), (2, 4), (5, 6)], 0) == (6, None)
    assert stretch_of([(0, 2), (1, 5), (6, 7)], 1) == (5, 6)
    assert stretch_of([(4, 5)], 3) == (3, 4)
    assert stretch_of([(4, 5)], 9) == (9, None)
