"""Covers: what is behind a backup in the strands of several processes, by partition: each entry
once, to the cut that is asked for.

Not covered: which cut counts (tests/unit/backup/test_strands.py), how pieces come to be
(test_strand_archiver.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.backup.manifest import Manifest, PartitionCopy, Piece
from dejaqueue.broker.backup.archive_tail import partition_number
from dejaqueue.broker.backup.strand_tail import StrandTail
from dejaqueue.connections.bucket import Bucket, DirectoryBucket
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.log_turn import read_slice
from dejaqueue.testing.journal_conformance import fill

TOPIC, ENTRIES = 5, 30


def bucket_of(root: Path, *, without: int = -1, clocks: int = 1) -> Bucket:
    """Two partitions in one log, whose entries are by threes in one strand and the other, each with
    one of those before; each piece of the first one says a cut behind itself."""
    store, random = MemoryStore(shards=1), np.random.default_rng(1)
    store.make("t", TOPIC)
    journals = [store.open("t", number) for number in range(2)]
    for number in range(ENTRIES):
        fill(journals[number % 2], random, 1, rows=3)
    (log,) = store.open_logs().values()
    bucket = DirectoryBucket(root)
    previous, numbers = ["", ""], [0, 0]
    for turn, start in enumerate(range(0, ENTRIES, 3)):
        which = turn % 2
        one = read_slice("0", log, max(start - 1, 0), start + 3, 1 << 20)
        numbers[which] += 1
        piece = LogPiece(
            f"c/process-{which}",
            numbers[which],
            previous[which],
            "s",
            0 if which else 1_000 + start + 4,
            (one,),
            {"0": start + 3},
            {f"{turn}": "wrapped"},
            {} if which else {"0": start + 4, "7": 0},
            1 if which else clocks,
        )
        stored = piece.encode()
        previous[which] = digest_of(stored)
        if turn != without:
            bucket.put_new(f"chains/{piece.chain}/{piece.number:012d}", stored)
    return bucket


def tail_of(bucket: Bucket, position: int = 0, **bounds: int | None) -> StrandTail:
    copy = PartitionCopy("t", TOPIC, "t", 0, position, None, ())
    manifest = Manifest(
        "b", "s", "", 5, 5, "1", Piece("", 0), (copy,), chain="c", logs={"0": 0}, in_strands=True
    )
    tail = StrandTail(manifest)
    try:
        tail.read_strands(
            bucket, until_ms=bounds.get("until_ms"), last=bounds.get("last"), damaged=None
        )
    except BaseException:
        tail.__exit__(None, None, None)
        raise
    return tail


def positions(tail: StrandTail, partition: int) -> list[int]:
    return [at for at, _, _ in tail.entries(partition_number(TOPIC, partition))]


@pytest.mark.parametrize(
    ("bounds", "end"),
    [({}, 28), ({"until_ms": 1_004}, 4), ({"until_ms": 1_005}, 10), ({"last": 1_021}, 16)],
)
def test_each_entry_is_there_once__to_the_cut(
    tmp_path: Path, bounds: dict[str, int], end: int
) -> None:
    with tail_of(bucket_of(tmp_path), **bounds) as tail:
        assert (tail.number, tail.at_ms) == (1_000 + end, 1_000 + end)
        assert tail.partitions(TOPIC) == [0, 1]
        assert positions(tail, 0) == list(range(1, end // 2 + 1))
        assert positions(tail, 1) == list(range(1, end // 2 + 1))
        assert len(tail.data_keys) == 10


def test_what_the_backup_has_is_left_out(tmp_path: Path) -> None:
    with tail_of(bucket_of(tmp_path), position=5) as tail:
        assert positions(tail, 0) == list(range(6, 15))
        assert positions(tail, 1) == list(range(1, 15))


def test_no_cut__nothing(tmp_path: Path) -> None:
    with tail_of(bucket_of(tmp_path), last=5) as tail:
        assert (tail.number, tail.at_ms, tail.partitions(TOPIC)) == (0, 0, [])
    with tail_of(DirectoryBucket(tmp_path / "empty")) as tail:
        assert (tail.number, positions(tail, 0)) == (0, [])


def test_a_piece_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    with pytest.raises(JournalDamaged):
        tail_of(bucket_of(tmp_path / "a", without=5))
    with pytest.raises(JournalDamaged, match="of log 0 are missing"):
        tail_of(bucket_of(tmp_path / "b", without=0))
    # The last piece of a strand: the entries of the cuts behind it are not there.
    with tail_of(bucket_of(tmp_path / "c", without=9)) as tail:
        assert tail.number == 1_022


@pytest.mark.parametrize(
    ("bounds", "end"),
    [({}, 28), ({"until_ms": 1_004}, 4), ({"until_ms": 1_009}, 4), ({"until_ms": 1_010}, 10)],
)
def test_of_several_clocks_it_goes_to_the_last_cut_that_is_not_later(
    tmp_path: Path, bounds: dict[str, int], end: int
) -> None:
    with tail_of(bucket_of(tmp_path, clocks=3), **bounds) as tail:
        assert (tail.at_ms, tail.reach_ms, tail.clocks) == (1_000 + end, 1_028, 3)


def test_of_several_clocks_no_cut_may_be_early_enough(tmp_path: Path) -> None:
    with tail_of(bucket_of(tmp_path, clocks=3), until_ms=1_003) as tail:
        assert (tail.at_ms, tail.number, tail.reach_ms) == (0, 0, 1_028)
        assert tail.partitions(TOPIC) == []
