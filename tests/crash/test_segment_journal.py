"""Covers: crashes, torn writes, rot, full disks and second processes, for the segment journal.

Not covered: the broker around it (test_broker_kill.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.errors import DejaQError, JournalDamaged, Locked, ResourceExhausted, Unavailable
from dejaqueue.journal.interface import Entry, SnapshotFile
from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.journal_conformance import (
    fill,
    make_ack,
    make_enqueue,
    read_rows,
    rows_of,
    values_of,
)
from tests.crash.disk_copies import (
    SEGMENT_BYTES,
    append_all,
    bytes_of,
    copied,
    killed,
    open_store,
    scanned,
    segment_paths,
)


def some_appends(seed: int, count: int, rows: int = 3) -> list[list[Entry]]:
    random = np.random.default_rng(seed)
    return [
        [make_enqueue(random, rows, 30) for _ in range(int(random.integers(1, 4)))]
        for _ in range(count)
    ]


# --- a crash at every byte --------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["zeros", "garbage", "cut off"])
def test_a_crash_at_every_byte_leaves_the_entries_before_it(rest: str) -> None:
    appends = some_appends(1, 4)
    entries = [values_of(entry) for append in appends for entry in append]
    disk = MemoryFileSystem()
    bounds = append_all(open_store(disk), appends)
    path = segment_paths(disk)[-1]
    original = bytes_of(disk, path).copy()
    random = np.random.default_rng(2)
    end = bounds[-1][1]
    start = bounds[len(bounds) // 2][0]
    for at in range(start, end):
        crashed = copied(disk)
        content = bytes_of(crashed, path)
        content[at:] = 0
        if rest == "garbage":
            content[at : at + 300] = random.integers(0, 256, len(content[at : at + 300]))
        elif rest == "cut off":
            crashed._contents[path].byte_count = at
        # Up to the first byte that differs: an entry may end with zeros.
        first = min([*np.flatnonzero(content[:end] != original[:end]).tolist(), len(content)])
        first = at if rest == "cut off" else first
        whole = sum(1 for _, entry_end in bounds if entry_end <= first)
        store = open_store(crashed)
        journal = store.open("topic", 0)
        assert journal.tail == whole, at
        journal.append([make_ack(at % 7)], whole, 2)
        journal.close()
        again = store.open("topic", 0)
        assert scanned(again) == [*entries[:whole], values_of(make_ack(at % 7))], at


def test_a_torn_append_may_be_torn_anywhere() -> None:
    # Pages of one append reach the disk in any order: a later entry of it may be whole.
    random = np.random.default_rng(4)
    first, last = some_appends(3, 1), [make_enqueue(random, 3, 600) for _ in range(4)]
    disk = MemoryFileSystem()
    bounds = append_all(open_store(disk), [*first, last])
    path, before = segment_paths(disk)[-1], len(first[0])
    for place in range(4):
        crashed = copied(disk)
        begin, end = bounds[before + place]
        sector = (begin + end) // 2 // 512 * 512
        bytes_of(crashed, path)[sector : sector + 512] = 0
        store = open_store(crashed)
        journal = store.open("topic", 0)
        assert journal.tail == before + place
        assert journal.cut_bytes > 0
        # What was cut is really gone: the same entry again does not bring the old ones back.
        journal.append([last[place]], journal.tail, 1)
        journal.close()
        assert store.open("topic", 0).tail == before + place + 1


# --- rot --------------------------------------------------------------------------------------


def test_every_bit_flip_is_found_or_harmless() -> None:
    appends = some_appends(5, 22, 4)
    disk = MemoryFileSystem()
    append_all(open_store(disk), appends)
    entries = [values_of(entry) for append in appends for entry in append]
    paths = segment_paths(disk)
    assert len(paths) >= 2
    flips = [(path, at) for path in paths for at in np.flatnonzero(bytes_of(disk, path)).tolist()]
    texts = set()
    outcomes = {"damaged": 0, "harmless": 0}
    for number, (path, at) in enumerate(flips):
        rotten = copied(disk)
        bytes_of(rotten, path)[at] ^= 1 << (number % 8)
        try:
            found = scanned(open_store(rotten).open("topic", 0))
        except JournalDamaged as damage:
            texts.add(str(damage))
            outcomes["damaged"] += 1
            continue
        assert found == entries, (path, at)
        outcomes["harmless"] += 1  # index and trailer, which are made again, and ends of appends
    assert all(str(paths[0].parent) in text and "offset" in text for text in texts)
    assert min(outcomes.values()) > 0, outcomes
    assert outcomes["damaged"] > outcomes["harmless"]


def test_no_bit_flip_behind_the_snapshot_gives_wrong_rows() -> None:
    appends = some_appends(6, 16, 4)
    disk = MemoryFileSystem()
    append_all(open_store(disk), appends)
    journal = open_store(disk).open("topic", 0)
    journal.put_snapshot(journal.tail, "{}", [])
    rows: dict[int, dict[str, bytes | None]] = {}
    for position, _, entry in journal.scan(0):
        rows |= rows_of(entry, position)
    journal.close()
    oldest = segment_paths(disk)[0]
    texts = []
    for number, at in enumerate(np.flatnonzero(bytes_of(disk, oldest)).tolist()):
        rotten = copied(disk)
        bytes_of(rotten, oldest)[at] ^= 1 << (number % 8)
        try:
            found = read_rows(open_store(rotten).open("topic", 0), list(rows))
        except JournalDamaged as damage:
            texts.append(str(damage))
        else:
            assert found == list(rows.values()), at
    assert len(texts) > 1_000
    assert all(f"{oldest}, offset" in text for text in texts)


def test_a_damaged_middle_is_refused_with_file_and_offset_and_left_alone() -> None:
    appends = some_appends(7, 3)
    disk = MemoryFileSystem()
    bounds = append_all(open_store(disk), appends)
    path = segment_paths(disk)[0]
    begin, _ = bounds[1]
    bytes_of(disk, path)[begin + 170] ^= 4
    before = bytes_of(disk, path).copy()
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=f"{path}, offset {begin}: entry 2 "):
            open_store(disk).open("topic", 0)
        assert (bytes_of(disk, path) == before).all()


def test_missing_and_foreign_segments_are_refused() -> None:
    disk = MemoryFileSystem()
    append_all(open_store(disk), some_appends(8, 40, 4))
    paths = segment_paths(disk)
    assert len(paths) >= 4
    for path in paths:
        crippled = copied(disk)
        crippled.unlink(path)
        with pytest.raises(JournalDamaged, match=f"{path.name}, offset 0: the segment is missing"):
            open_store(crippled).open("topic", 0)
    foreign = copied(disk)
    foreign.rename(paths[0].parent, paths[0].parent.with_name("0001"))
    with pytest.raises(JournalDamaged, match="belongs to another shard"):
        open_store(foreign).open("topic", 1)


def test_a_journal_that_ends_before_its_snapshot_is_refused() -> None:
    disk = MemoryFileSystem()
    bounds = append_all(open_store(disk), some_appends(9, 2))
    journal = open_store(disk).open("topic", 0)
    journal.put_snapshot(journal.tail, "{}", [])
    killed(journal)
    bytes_of(disk, segment_paths(disk)[0])[bounds[0][1] :] = 0
    with pytest.raises(JournalDamaged, match="the journal ends at 1, its snapshot"):
        open_store(disk).open("topic", 0)


# --- power cuts -------------------------------------------------------------------------------


def _work(files: FaultyFileSystem, random: np.random.Generator) -> tuple[list[Entry], list[Entry]]:
    """Append, snapshot, free until something fails; return what was acked, and the last try."""
    acked: list[Entry] = []
    batch: list[Entry] = []
    journal = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
    journal.adopt(iter(()))
    try:
        while len(acked) < 150:
            batch = [make_enqueue(random, 3, 100) for _ in range(int(random.integers(1, 6)))]
            journal.append(batch, journal.tail, 1)
            acked += batch
            if random.random() < 0.1:
                parts = [SnapshotFile(f"part-{journal.tail}", random.bytes(700))]
                journal.put_snapshot(journal.tail, str(journal.tail), parts)
    except (Unavailable, ResourceExhausted):
        return acked, batch
    return acked, []


@pytest.mark.parametrize("operation", ["sync", "write", "rename", "sync_directory", "allocate"])
def test_a_power_cut_keeps_what_was_acked(operation: str) -> None:
    cuts = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        disk = MemoryFileSystem()
        files = FaultyFileSystem(disk, spares=seed % 2 == 0)
        span = 60 if operation in {"sync", "write"} else 12
        files.fail(operation, after=int(random.integers(5, span)))
        try:
            acked, tried = _work(files, random)
        except Unavailable:
            continue  # failed while opening
        files.power_cut(random, survival=float(random.random()))
        journal = open_store(disk).open("topic", 0)
        found = scanned(journal)
        assert len(acked) <= len(found) <= len(acked) + len(tried), seed
        assert found == [values_of(entry) for entry in [*acked, *tried][: len(found)]], seed
        snapshot = journal.latest_snapshot()
        if snapshot is not None:
            assert snapshot.meta == str(snapshot.position)
            assert len(journal.read_snapshot_file(snapshot.files[0])) == 700
        assert journal.append([make_ack(1)], journal.tail, 2) == len(found) + 1
        cuts += 1
    assert cuts > 20


def test_recovery_makes_durable_what_it_serves() -> None:
    # A sync failed, the kernel shows the pages as clean, the process starts again, and only then
    # does the power fail: what the second life has served must still be there.
    disk = MemoryFileSystem()
    files = FaultyFileSystem(disk)
    journal = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
    journal.append([make_ack(1)], 0, 1)
    files.fail("sync")
    with pytest.raises(Unavailable):
        journal.append([make_ack(2), make_ack(3)], 1, 1)
    writes = files.calls["write"]
    served = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
    assert served.tail == 3
    assert files.calls["write"] == writes + 1, "the append in doubt was not written again"
    files.power_cut(np.random.default_rng(1), survival=0)
    assert open_store(disk).open("topic", 0).tail == 3


@pytest.mark.parametrize("again", [False, True])
def test_where_a_segment_ends_survives_once_those_behind_it_are_deleted(again: bool) -> None:
    # Its index and trailer were not synced: how many entries it has, the next segment told. Were
    # that one deleted, a power cut left a journal that was refused as damaged.
    disk = MemoryFileSystem()
    files = FaultyFileSystem(disk)
    store = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES)
    journal = store.open("topic", 0)
    journal.adopt(iter(()))
    random = np.random.default_rng(15)
    rows: dict[int, dict[str, bytes | None]] = {}
    while len(segment_paths(disk)) < 4:
        rows |= fill(journal, random, 1)
    for position in (journal.tail - 1, journal.tail):
        journal.put_snapshot(position, "{}", [])
    journal.truncate(journal.tail)
    paths = segment_paths(disk)
    firsts = np.array([int(path.stem) for path in paths])
    place = firsts.searchsorted(np.array(list(rows)) >> limits.ROW_BITS, side="right") - 1
    kept = {one: row for at, (one, row) in zip(place, rows.items(), strict=True) if at != 1}
    if again:
        files.fail("sync")  # of the trailer: nothing is deleted then
    journal.free(np.array([one for one in rows if one not in kept], dtype=np.int64))
    assert segment_paths(disk) == (paths if again else [paths[0], *paths[2:]])
    if again:
        journal.close()
        journal = store.open("topic", 0)
        journal.adopt(iter([np.array(list(kept), dtype=np.int64)]))
        journal.truncate(journal.tail)
        assert segment_paths(disk) == [paths[0], *paths[2:]]
    files.sync_directory(paths[0].parent)
    files.power_cut(random, survival=0)
    journal = open_store(disk).open("topic", 0)
    assert read_rows(journal, list(kept)) == list(kept.values())


# --- failing syncs ----------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(12))
def test_the_first_failed_sync_is_final(nth: int) -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    journal = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
    files.fail("sync", after=nth)
    with pytest.raises(Unavailable, match="failed"):
        fill(journal, np.random.default_rng(nth), 60)
    acked = journal.tail
    calls = dict(files.calls)
    for _ in range(3):
        with pytest.raises(Unavailable):
            journal.append([make_ack(1)], acked, 1)
        with pytest.raises(Unavailable):
            journal.read(np.zeros(1, dtype=np.int64))
        with pytest.raises(Unavailable):
            journal.has_room(1)
    assert dict(files.calls) == calls, "a failed journal went on"


# --- full disks -------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["allocate", "write"])
def test_a_full_disk_appends_nothing_and_leaves_the_journal_usable(operation: str) -> None:
    random = np.random.default_rng(10)
    disk = MemoryFileSystem()
    files = FaultyFileSystem(disk)
    store = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES)
    journal = store.open("topic", 0)
    written = fill(journal, random, 20)
    refused = 0
    for _ in range(60):
        files.fail_always(operation, errno.ENOSPC)
        batch = [make_enqueue(random, 3, 100), make_enqueue(random, 3, 100)]
        tail = journal.tail
        try:
            journal.append(batch, tail, 1)
        except ResourceExhausted:
            refused += 1
            assert journal.tail == tail
            crashed = open_store(copied(disk)).open("topic", 0)
            assert crashed.tail == tail, "a refused append is there after a crash"
        else:
            for position, entry in enumerate(batch, tail + 1):
                written |= rows_of(entry, position)
        files.fail_always(operation, None)
        written |= fill(journal, random, 1)
    assert refused > 3
    assert read_rows(journal, list(written)) == list(written.values())
    journal.close()
    journal = store.open("topic", 0)
    assert read_rows(journal, list(written)) == list(written.values())


def test_nothing_of_a_refused_append_comes_back_behind_an_entry_that_it_began_with() -> None:
    disk = MemoryFileSystem()
    files = FaultyFileSystem(disk)
    journal = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
    journal.append([make_ack(1)], 0, 1)
    files.fail("write", number=errno.ENOSPC)
    with pytest.raises(ResourceExhausted):
        journal.append([make_ack(2), make_ack(3), *[make_ack(200)] * 3], 1, 1)
    journal.append([make_ack(2)], 1, 1)  # byte for byte what is there, and the next one chains
    assert open_store(copied(disk)).open("topic", 0).tail == 2


def test_producers_stop_before_acks_do() -> None:
    reserve_bytes = 100_000
    files = FaultyFileSystem(MemoryFileSystem())
    store = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES, reserve_bytes=reserve_bytes)
    journal = store.open("topic", 0)
    files.free = 150_000
    assert journal.has_room(50_000)
    assert not journal.has_room(50_001)
    files.free = reserve_bytes - 1
    assert not journal.has_room(0)
    assert journal.append([make_ack(10)], 0, 1) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting needs root; the full disk is tested by the faulty file system above")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def take_all_room(fd: int) -> None:
    with contextlib.suppress(OSError):
        for pages in range(1, 1 << 20):
            os.posix_fallocate(fd, 0, 4096 * pages)


@pytest.mark.may_skip
def test_a_small_disk_runs_full_and_empties_again(small_disk: Path) -> None:
    random = np.random.default_rng(11)
    store = SegmentStore(small_disk, segment_bytes=1 << 18, reserve_bytes=1 << 19)
    journal = store.open("topic", 0)
    journal.adopt(iter(()))
    written: dict[int, dict[str, bytes | None]] = {}
    while journal.has_room(50_000):
        written |= fill(journal, random, 5)
    assert len(written) > 1_000
    for _ in range(300):  # consumers go on within the reserve
        journal.append([make_ack(100)], journal.tail, 1)
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        take_all_room(file.fileno())
    with pytest.raises(ResourceExhausted):
        fill(journal, random, 400)
    tail = journal.tail
    with pytest.raises(ResourceExhausted):
        journal.put_snapshot(tail, "{}", [SnapshotFile("large", bytes(1 << 20))])
    filler.unlink()
    assert scanned(journal, tail - 1) != []
    journal.adopt(iter(()))  # everything is done, what the refused ones left, too
    for position in (tail - 1, tail):
        journal.put_snapshot(position, "{}", [])
        journal.truncate(position)
    fill(journal, random, 5)
    store.close()
    store = SegmentStore(small_disk, segment_bytes=1 << 18, reserve_bytes=1 << 19)
    journal = store.open("topic", 0)
    assert journal.tail == tail + 5
    assert journal.has_room(50_000)
    store.close()


# --- other processes --------------------------------------------------------------------------

_HOLD = """
import sys
from pathlib import Path
from dejaqueue.journal.segments.store import SegmentStore
store = SegmentStore(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

_APPEND = """
import sys
from pathlib import Path
import numpy as np
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.journal_conformance import fill
journal = SegmentStore(Path(sys.argv[1]), segment_bytes=1 << 16).open("topic", 0)
random = np.random.default_rng(journal.tail)
while True:
    fill(journal, random, 1)
    print(journal.tail, flush=True)
"""


def _start(script: str, directory: Path) -> subprocess.Popen[str]:
    source = Path(__file__).parents[2] / "src"
    return subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )


def test_a_second_process_is_locked_out(tmp_path: Path) -> None:
    with _start(_HOLD, tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Locked, match=f"{tmp_path} is in use by process {holder.pid}"):
            SegmentStore(tmp_path)
        holder.kill()
    SegmentStore(tmp_path).close()


@pytest.mark.crash
def test_a_killed_process_leaves_what_it_acked(tmp_path: Path) -> None:
    tail = 0
    for round_number in range(4):
        with _start(_APPEND, tmp_path) as writer:
            assert writer.stdout is not None
            for _ in range(60 + 37 * round_number):
                tail = int(writer.stdout.readline())
            writer.kill()
            tail = max([tail, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        store = SegmentStore(tmp_path, segment_bytes=1 << 16)
        journal = store.open("topic", 0)
        assert tail <= journal.tail <= tail + 1
        assert len(list(journal.scan(0))) == journal.tail
        store.close()


# --- snapshots --------------------------------------------------------------------------------


def _two_snapshots(disk: MemoryFileSystem) -> list[dict[str, object]]:
    journal = open_store(disk).open("topic", 0)
    journal.adopt(iter(()))
    rows = fill(journal, np.random.default_rng(12), 60)
    journal.free(np.array(list(rows), dtype=np.int64))
    journal.put_snapshot(40, "old", [SnapshotFile("shared", b"s" * 99), SnapshotFile("a", b"1")])
    journal.truncate(40)
    journal.put_snapshot(60, "new", [SnapshotFile("shared", None), SnapshotFile("b", b"2" * 50)])
    journal.truncate(60)
    entries = scanned(journal, 40)
    journal.close()
    return entries


def test_a_damaged_snapshot_falls_back_to_the_one_before() -> None:
    disk = MemoryFileSystem()
    entries = _two_snapshots(disk)
    assert len(entries) == 20
    assert min(int(path.stem) for path in segment_paths(disk)) > 1, "nothing was given back"
    names = [path for path in disk._contents if path.name in {f"{60:020d}.manifest", "b"}]
    assert len(names) == 2
    for path in names:
        for at in range(0, disk._contents[path].byte_count, 3):
            rotten = copied(disk)
            bytes_of(rotten, path)[at] ^= 1
            journal = open_store(rotten).open("topic", 0)
            snapshot = journal.latest_snapshot()
            assert snapshot is not None
            assert (snapshot.position, snapshot.meta) == (40, "old")
            assert bytes(journal.read_snapshot_file("shared")) == b"s" * 99
            assert scanned(journal, 40) == entries
            journal.put_snapshot(60, "new again", [SnapshotFile("shared", None)])
            found = journal.latest_snapshot()
            assert found is not None
            assert found.meta == "new again"


def test_with_both_snapshots_damaged_the_journal_is_refused() -> None:
    disk = MemoryFileSystem()
    _two_snapshots(disk)
    shared = next(path for path in disk._contents if path.name == "shared")
    bytes_of(disk, shared)[0] ^= 1
    with pytest.raises(JournalDamaged, match="entry 1 was given back, no snapshot"):
        open_store(disk).open("topic", 0)


def test_a_crash_anywhere_in_a_snapshot_leaves_the_one_before_or_the_new_one() -> None:
    def put(files: FileSystem) -> str:
        state = "none"
        try:
            journal = MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0)
            fill(journal, np.random.default_rng(13), 10)
            for state in ("first", "second", "third"):
                parts = [SnapshotFile(state, state.encode()), SnapshotFile("kept", b"kept")]
                journal.put_snapshot(journal.tail, state, parts)
                fill(journal, np.random.default_rng(14), 1)
        except DejaQError:
            return state
        return "all"

    states = ["first", "second", "third"]
    seen = set()
    for operation in ("sync", "write", "rename", "sync_directory", "open"):
        for nth in range(40):
            random = np.random.default_rng(nth)
            disk = MemoryFileSystem()
            files = FaultyFileSystem(disk)
            MemoryStore(file_system=files, segment_bytes=SEGMENT_BYTES).open("topic", 0).close()
            files.fail(operation, after=nth)
            failed = put(files)
            seen.add(failed)
            files.power_cut(random)
            snapshot = open_store(disk).open("topic", 0).latest_snapshot()
            done = (
                len(states) if failed == "all" else states.index(failed) if failed in states else 0
            )
            allowed = [None, *states][done : done + 2]
            assert (snapshot.meta if snapshot else None) in allowed, (operation, nth, failed)
    assert seen >= {"first", "second", "third", "all"}
