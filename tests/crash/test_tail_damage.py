"""Covers: damage of what was appended last, told from an append that a crash left unfinished.

Not covered: damage before that, and every state of a crash (test_segment_journal.py,
test_crash_states.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dejaqueue.client import Client
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.proof import END_BYTES, MARK_NAME, SECTOR_BYTES
from dejaqueue.journal.segments.recovery import CUT_SUFFIX, CUTS_KEPT
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.journal_conformance import make_ack, make_enqueue, values_of
from tests.crash.broker_process import BrokerProcess
from tests.crash.disk_copies import append_all, bytes_of, copied, open_store, scanned, segment_paths
from tests.patience import until

ROWS = 1_000


def appends(last: int = 1, payload: int = 700) -> list[list[Entry]]:
    random = np.random.default_rng(1)
    sizes = (1, 2, last)
    return [[make_enqueue(random, 3, payload) for _ in range(size)] for size in sizes]


def left_open(given: list[list[Entry]]) -> tuple[MemoryFileSystem, list[tuple[int, int]]]:
    """A disk as a kill right after the last reply leaves it; where the entries lie."""
    disk = MemoryFileSystem()
    return disk, append_all(open_store(disk), given)


def kept_files(disk: MemoryFileSystem) -> list[Path]:
    return sorted(path for path in disk._contents if path.suffix == CUT_SUFFIX)


@pytest.mark.parametrize("rested", [True, False])
@pytest.mark.parametrize("last", [1, 3])
def test_a_flipped_bit_in_the_newest_append_is_damage__wherever_it_is(
    last: int, rested: bool
) -> None:
    disk, bounds = left_open(appends(last))
    if rested:
        journal = open_store(disk).open("topic", 0)
        journal.close()
    path, begin, end = segment_paths(disk)[-1], bounds[-last][0], bounds[-1][1]
    for at in range(begin, end, 7):
        rotten = copied(disk)
        bytes_of(rotten, path)[at] ^= 1 << at % 8
        before = bytes_of(rotten, path).copy()
        with pytest.raises(JournalDamaged, match=f"{path}, offset .* is not what was written"):
            open_store(rotten).open("topic", 0)
        assert (bytes_of(rotten, path) == before).all(), at
        assert kept_files(rotten) == []


@pytest.mark.parametrize("how", ["zeros", "cut off", "gone"])
def test_what_rested_is_not_cut__whatever_became_of_it(how: str) -> None:
    disk, bounds = left_open(appends())
    journal = open_store(disk).open("topic", 0)
    assert not journal.is_proved
    journal.prove()
    assert journal.is_proved
    path, begin = segment_paths(disk)[-1], bounds[-1][0]
    if how == "zeros":
        bytes_of(disk, path)[begin:] = 0
    elif how == "cut off":
        disk._contents[path].byte_count = begin
    else:
        disk.unlink(path)
    with pytest.raises(JournalDamaged, match=f"{path.parent}"):
        open_store(disk).open("topic", 0)


def test_a_sector_that_was_left_out_is_no_damage__of_an_append_that_never_rested() -> None:
    given = appends(3)
    disk, bounds = left_open(given)
    path, begin, end = segment_paths(disk)[-1], bounds[-3][0], bounds[-1][1]
    kept = [values_of(entry) for entry in (*given[0], *given[1])]
    for sector in range(begin // SECTOR_BYTES, -(-(end + END_BYTES) // SECTOR_BYTES)):
        torn = copied(disk)
        content = bytes_of(torn, path)
        first, last = sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES
        was = content[max(begin, first) : last].copy()
        content[max(begin, first) : last] = 0
        journal = open_store(torn).open("topic", 0)
        found = scanned(journal)
        assert found[:3] == kept
        if first >= end:
            assert len(found) == 6  # of its end nothing is needed
            continue
        assert len(found) < 6 or not was.any(), sector
        assert journal.cut_bytes > 0
        assert any("cut off, and kept as" in text for text in journal.repairs)


def test_what_is_cut_is_kept_beside__and_not_for_ever() -> None:
    disk, bounds = left_open(appends())
    path, (begin, end) = segment_paths(disk)[-1], bounds[-1]
    was = bytes_of(disk, path)[begin:end].copy()
    was[-600:] = 0
    for turn in range(CUTS_KEPT + 3):
        bytes_of(disk, path)[begin:end] = was
        bytes_of(disk, path)[end:] = 0
        journal = open_store(disk).open("topic", 0)
        assert journal.tail == 3
        newest = kept_files(disk)[-1]
        assert f"kept as {newest}" in journal.repairs[0]
        kept = bytes_of(disk, newest)
        assert (kept == was[: len(kept)]).all()
        assert not was[len(kept) :].any()
        assert len(kept_files(disk)) == min(turn + 1, CUTS_KEPT)
    journal.append([make_ack(1)], 3, 1)


def test_a_full_disk_does_not_keep_a_torn_append_from_being_cut() -> None:
    disk, bounds = left_open(appends())
    path, (begin, _) = segment_paths(disk)[-1], bounds[-1]
    bytes_of(disk, path)[begin + 500 :] = 0
    faulty = FaultyFileSystem(disk)
    faulty.fail("allocate", number=28)
    journal = open_store(faulty).open("topic", 0)  # type: ignore[arg-type]
    assert journal.tail == 3
    assert "could not be kept" in journal.repairs[0]


@pytest.mark.parametrize("copy", [0, 4096])
def test_one_copy_of_the_mark_is_enough__and_damage_of_the_other_is_told(copy: int) -> None:
    disk, bounds = left_open(appends())
    open_store(disk).open("topic", 0).close()
    mark = next(path for path in disk._contents if path.name == MARK_NAME)
    bytes_of(disk, mark)[copy + 30] ^= 1
    whole = copied(disk)
    journal = open_store(whole).open("topic", 0)
    assert any("mark is not what was written" in text for text in journal.repairs)
    assert journal.tail == 4
    path, begin = segment_paths(disk)[-1], bounds[-1][0]
    bytes_of(disk, path)[begin:] = 0
    with pytest.raises(JournalDamaged, match="up to 4 were durable"):
        open_store(disk).open("topic", 0)


def test_proving_costs_an_append_nothing__and_closing_one_sync() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    journal = open_store(files).open("topic", 0)  # type: ignore[arg-type]
    journal.append([make_ack(1)], 0, 1)
    before = dict(files.calls)
    for _ in range(20):
        journal.append([make_ack(1), make_ack(2)], journal.tail, 1)
    assert files.calls["write"] - before["write"] == 20
    assert files.calls["sync"] - before["sync"] == 20
    journal.prove()
    synced = files.calls["sync"]
    journal.prove()
    journal.close()
    assert files.calls["sync"] == synced  # what is proved is not proved again


@pytest.mark.parametrize("end", ["killed at once", "killed after a rest", "stopped"])
def test_rows_that_were_acknowledged_are_not_deleted_for_one_flipped_bit(
    end: str, tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path / "queue", tmp_path / "log", journal__snapshot_interval_ms=0)
    shards = tmp_path / "queue" / "shards"
    try:
        broker.start()
        with Client(broker.url) as client:
            client.create_topic("orders")
            rows = [{"payload": b"%06d" % row, "delay": 600} for row in range(ROWS)]
            sent = client.send_batch("orders", rows)
            assert len(sent.ids) == ROWS
            if end == "killed after a rest":
                until(lambda: any(shards.glob(f"*/{MARK_NAME}")))
    finally:
        broker.stop() if end == "stopped" else broker.kill()
    (segment,) = shards.glob("*/00000000000000000001.segment")
    content = bytearray(segment.read_bytes())
    content[content.index(b"000500")] ^= 1
    segment.write_bytes(content)
    try:
        broker.start()
        with Client(broker.url, retry_ms_max=0) as client, pytest.raises(JournalDamaged):
            client.peek("orders")
        assert segment.read_bytes() == bytes(content)
    finally:
        broker.kill()
