"""Covers: which stretches and pieces a copy of a partition has, and what the next one reads anew.

Not covered: what is restored of them (test_archived_partition.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import ENTRIES, ROWS, PartitionCopy
from dejaqueue.broker.backup import copying
from dejaqueue.broker.backup.copying import CopyTarget, PartitionReader
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.shard.core import PartitionCore
from tests.backups import client_of, started
from tests.patience import until

FAR = 3_600


class Copied:
    """A broker on a directory, with one topic of one partition, and copies of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.broker: Broker = started(tmp_path / "data")
        self.client = client_of(self.broker)
        self.client.create_topic("a")
        self.archive = Archive.open(str(tmp_path / "backups"), make=True)
        self.new_bytes = 0

    def look(self, function: object) -> object:
        return self.broker.runtime("a").look(0, function).result()  # type: ignore[arg-type]

    def send(self, *payloads: bytes, delay: int = FAR) -> list[int]:
        sent = self.client.send_batch("a", [{"payload": one, "delay": delay} for one in payloads])
        return list(sent.ids)

    def snapshot(self) -> None:
        maintenance = self.broker.runtime("a").partitions[0].maintenance
        wanted = maintenance.snapshot_count + 1
        self.look(maintenance.begin_snapshot)
        until(lambda: maintenance.snapshot_count == wanted)

    def copy(self, before: PartitionCopy | None = None) -> PartitionCopy:
        core = self.look(lambda core: core)
        assert isinstance(core, PartitionCore)
        target = CopyTarget(self.archive, "store", None)
        place = ("a", 1, "a", 0)
        found = PartitionReader(
            target, core.journal, place, before, wants_entries=before is not None
        ).copy(core.position)
        self.new_bytes = target.new_bytes
        return found


@pytest.fixture
def copied(tmp_path: Path):  # type: ignore[no-untyped-def]
    found = Copied(tmp_path)
    yield found
    found.broker.stop()


def shape(copy: PartitionCopy) -> list[tuple[str, int, int, int]]:
    return [(one.kind, one.after, one.last, one.rows) for one in copy.stretches]


def test_without_a_snapshot_entries_are_copied_whole__the_next_time_those_behind(
    copied: Copied,
) -> None:
    copied.send(b"1", b"2")
    first = copied.copy()
    assert shape(first) == [(ENTRIES, 0, first.position, 2)]
    copied.send(b"3")
    second = copied.copy(first)
    assert shape(second) == [*shape(first), (ENTRIES, first.position, first.position + 1, 1)]
    assert second.stretches[0] == first.stretches[0]
    assert shape(copied.copy(second)) == shape(second)
    assert copied.new_bytes == 0


def test_behind_a_snapshot_rows_that_are_live_are_copied(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, _ = copied.send(b"gone", b"kept")
    first = copied.copy()
    copied.client.cancel("a", ids=[gone])
    copied.send(b"new")
    copied.snapshot()
    copied.send(b"newer")
    copy = copied.copy()
    assert copy.snapshot is not None
    covered = copy.snapshot.position
    assert shape(copy) == [(ROWS, 0, covered, 2), (ENTRIES, covered, copy.position, 1)]
    again = copied.copy(first)
    behind = first.position
    assert shape(again) == [
        (ENTRIES, 0, behind, 2),
        (ENTRIES, behind, covered, 1),  # whole: any instant in between can be restored
        (ENTRIES, covered, copy.position, 1),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(PartitionReader, "_entries_there", lambda *_: [])  # they were given back
        again = copied.copy(first)
    assert shape(again)[1] == (ROWS, behind, covered, 1)


def test_files_of_a_snapshot_that_did_not_change_are_not_stored_again(copied: Copied) -> None:
    copied.send(*[b"x" * 1_000] * 500)
    copied.snapshot()
    first = copied.copy()
    full_bytes = copied.new_bytes
    copied.send(b"one")
    copied.snapshot()
    assert first.snapshot is not None
    second = copied.copy(first)
    assert second.snapshot is not None
    assert second.stretches[0] == first.stretches[0]
    assert copied.new_bytes < full_bytes // 10


def test_a_stretch_with_few_live_rows_is_copied_anew__one_without_any_is_dropped(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PIECE_BYTES", 1)
    monkeypatch.setattr("dejaqueue.backup.pieces.PIECE_BYTES", 1)  # a piece for each entry
    dead = copied.send(b"1", b"2")
    sparse = copied.send(*[b"x"] * 8)
    kept = copied.send(b"3", b"4")
    first = copied.copy()
    copied.client.cancel("a", ids=[*dead, *sparse[1:], kept[0]])
    copied.snapshot()
    second = copied.copy(first)
    of_rows = [one for one in second.stretches if one.last <= first.position]
    assert [(one.kind, one.rows, one.piece is None) for one in of_rows] == [
        (ROWS, 0, True),  # the epoch, the settings, and what was cancelled
        (ROWS, 1, False),
        (ENTRIES, 2, False),
    ]
    assert [one.after for one in second.stretches[1:]] == [one.last for one in second.stretches][
        :-1
    ]


def test_many_small_stretches_become_one__so_a_copy_does_not_grow_with_each_backup(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "SMALL_COUNT", 8)
    copy: PartitionCopy | None = None
    counts = []
    for number in range(1, 61):
        copied.send(b"%d" % number)
        if number % 4 == 0:
            copied.snapshot()
        copy = copied.copy(copy)
        counts.append(len(copy.stretches))
        assert sum(one.rows for one in copy.stretches) == number
        ends = [(one.after, one.last) for one in copy.stretches]
        assert [0, *(last for _, last in ends)] == [*(after for after, _ in ends), copy.position]
    assert max(counts) <= 8 + 8, counts
