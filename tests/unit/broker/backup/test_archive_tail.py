"""Covers: what is behind a backup, by partition: sorted from pieces, cut at what a piece says.

Not covered: how pieces come to be (test_archiver.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.backup.manifest import Manifest, PartitionCopy, Piece
from dejaqueue.broker.backup.archive_tail import ArchiveTail, partition_number
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.log_turn import read_slice
from dejaqueue.testing.journal_conformance import fill

TOPIC = 5


@pytest.fixture
def chain(tmp_path: Path) -> LogChain:
    """Two partitions in one log: thirty pieces of an entry each, of which two in three say when."""
    store, random = MemoryStore(shards=1), np.random.default_rng(1)
    store.make("t", TOPIC)
    journals = [store.open("t", number) for number in range(2)]
    for number in range(30):
        fill(journals[number % 2], random, 1, rows=3)
    (log,) = store.open_logs().values()
    chain, previous = LogChain(DirectoryBucket(tmp_path), "c"), ""
    for number in range(1, log.tail + 1):
        one = read_slice("0", log, number - 1, number, 1)
        at_ms = 0 if number % 3 == 0 else 1_000 + number
        keys = {f"{number}": "wrapped"}
        piece = LogPiece("c", number, previous, "s", at_ms, (one,), {"0": number}, keys)
        stored = piece.encode()
        previous = digest_of(stored)
        chain.put_new(number, stored)
    return chain


def manifest_of(position: int = 0) -> Manifest:
    copy = PartitionCopy("t", TOPIC, "t", 0, position, None, ())
    return Manifest("b", "s", "", 5, 5, "1", Piece("", 0), (copy,), chain="c", logs={"0": 0})


def read(chain: LogChain, manifest: Manifest, **more: int) -> Iterator[ArchiveTail]:
    until_ms, last = more.get("until_ms"), more.get("last")
    with ArchiveTail(manifest) as tail:
        tail.read(chain, until_ms=until_ms, last=last, damaged=None)
        yield tail


def positions(tail: ArchiveTail, partition: int) -> list[int]:
    return [at for at, _, _ in tail.entries(partition_number(TOPIC, partition))]


def test_entries_are_those_of_their_partition__behind_the_backup(chain: LogChain) -> None:
    count = len(chain.numbers())
    for tail in read(chain, manifest_of(position=4)):
        assert tail.partitions(TOPIC) == [0, 1]
        both = positions(tail, 0), positions(tail, 1)
        assert both[0] == list(range(5, 5 + len(both[0])))
        assert both[1] == list(range(1, 1 + len(both[1])))
        assert (tail.number, tail.at_ms) == (tail.number, 1_000 + tail.number)
        assert tail.number == count - (count % 3 == 0)
        assert 4 + len(both[0]) + len(both[1]) == tail.number
        assert len(tail.data_keys) == count
        assert (tail.partitions(TOPIC + 1), positions(tail, 7)) == ([], [])


@pytest.mark.parametrize(
    ("bounds", "number"),
    [({"until_ms": 1_007}, 7), ({"until_ms": 1_009}, 10), ({"last": 9}, 8), ({"last": 0}, 0)],
)
def test_it_ends_where_a_piece_says_when_that_is(
    chain: LogChain, bounds: dict[str, int], number: int
) -> None:
    for tail in read(chain, manifest_of(), **bounds):
        assert (tail.number, tail.at_ms) == (number, number and 1_000 + number)
        assert len(positions(tail, 0)) + len(positions(tail, 1)) == number


def test_what_is_damaged_is_refused__or_told_and_left_out(chain: LogChain) -> None:
    chain._bucket.put(chain.path(8), b"rotten")
    with pytest.raises(JournalDamaged, match="/000000000008"):
        next(read(chain, manifest_of()))
    damage: list[str] = []
    with ArchiveTail(manifest_of()) as tail:
        tail.read(chain, until_ms=None, last=None, damaged=damage.append)
        assert (tail.number, len(damage)) == (7, 1)
