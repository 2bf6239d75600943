"""Covers: encrypted segments: reading after restarts, little memory, damage and forgery, no marker.

Not covered: a broker with them (tests/integration/test_encryption.py), the contract of journals
(tests/conformance/test_encrypted.py).
"""

from __future__ import annotations

import errno
import gc
import itertools
import random
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from dejaqueue.errors import (
    DejaQError,
    EncryptionKeyMissing,
    JournalDamaged,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption import data_keys
from dejaqueue.journal.encryption.master_keys import LocalMasterKey, new_aead
from dejaqueue.journal.interface import Entry, EntryKind, SnapshotFile
from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.journal_conformance import Rows, fill, read_rows, text_column
from tests.crash.disk_copies import copied

MASTER = LocalMasterKey(b"m" * 32)
MARKER = b"MARKER-of-a-payload"


def opened(
    disk: MemoryFileSystem, clear_bytes_max: int = 0, segment_bytes: int = 1 << 14
) -> MemoryStore:
    store = MemoryStore(file_system=disk, segment_bytes=segment_bytes, shards=1)
    store.encrypt([MASTER], clear_bytes_max)
    return store


def marked(rows: int = 3) -> Entry:
    texts = {name: text_column([MARKER] * rows) for name in ("payload", "key", "group")}
    return Entry(EntryKind.ENQUEUE, 1, rows=rows, texts=texts, extra=MARKER)


def contents(disk: MemoryFileSystem) -> dict[Path, Any]:
    """The bytes of all files, to read and to spoil."""
    return {
        path: memoryview(content.memory)[: content.byte_count]
        for path, content in disk._contents.items()
        if content.memory is not None
    }


def test_no_file_has_a_marker__and_all_is_read_after_a_restart() -> None:
    disk = MemoryFileSystem()
    journal = opened(disk).open("t", 0)
    for _ in range(200):
        journal.append([marked()], journal.tail, 1)
    journal.put_snapshot(100, "{}", [SnapshotFile("part", MARKER)])
    assert len([path for path in contents(disk) if path.suffix == ".segment"]) > 2
    assert not [path for path, found in contents(disk).items() if MARKER in bytes(found)]
    for one in (journal, opened(copied(disk)).open("t", 0)):
        assert bytes(one.read_snapshot_file("part")) == MARKER
        assert [entry.extra for _, _, entry in one.scan(0)] == [MARKER] * 200
        locators = (np.arange(1, 201) << 20) | 1
        found = one.read(locators, ["payload", "key", "tags"]).to_pydict()
        assert found["payload"] == [MARKER] * 200
        assert found["key"] == [MARKER.decode()] * 200
        assert found["tags"] == [None] * 200


def test_rows_are_read_in_any_order_while_little_may_be_decrypted() -> None:
    disk, chance = MemoryFileSystem(), np.random.default_rng(1)
    store = opened(disk, 1 << 20, 1 << 19)
    journal = store.open("t", 0)
    rows: Rows = {}
    for _ in range(150):
        rows |= fill(journal, chance, 2, rows=400)
    wanted = list(rows)
    for one in (journal, opened(copied(disk), 1 << 20).open("t", 0)):
        for _ in range(6):
            some = random.Random(1).sample(wanted, 500)
            assert read_rows(one, some) == [rows[locator] for locator in some]
        segments = one.log.listed.segments
        clear = sum(segment.clear.byte_count for segment in segments if segment.clear)
        assert sum(segment.used for segment in segments) > 5 << 20
        assert clear < 4 << 20


def test_who_reads_keeps_what_is_forgotten_meanwhile() -> None:
    disk = MemoryFileSystem()
    journal = opened(disk).open("t", 0)
    journal.append([marked()], 0, 1)
    listed = journal.log.listed
    segment = listed.segments[0]
    before = weakref.ref(listed)
    segment.forget_clear()
    assert segment.clear is not listed.clears[0]
    assert bytes(listed.clears[0].memory.view).count(MARKER) == 10
    journal.append([marked()], 1, 1)
    assert journal.read(np.array([1 << 20, 2 << 20]), ["payload"]).to_pydict() == {
        "payload": [MARKER, MARKER]
    }
    del listed
    gc.collect()
    assert before() is None


def spoiled(disk: MemoryFileSystem, path: Path, at: int, change: Any) -> DejaQError | None:
    """What a store says of a disk with a file that was changed; None if it reads as it was."""
    copy = copied(disk)
    change(contents(copy)[path], at)
    try:
        journal = opened(copy).open("t", 0)
        entries = [entry.extra for _, _, entry in journal.scan(0)]
        read = journal.read((np.arange(1, 9) << 20) | 2, ["payload"]).to_pydict()["payload"]
    except DejaQError as error:
        return error
    assert entries == [MARKER] * 8
    assert read == [MARKER] * 8
    return None


def written(disk: MemoryFileSystem) -> tuple[SegmentJournal, Path, list[int]]:
    store = opened(disk)
    journal = store.open("t", 0)
    for _ in range(8):
        journal.append([marked()], journal.tail, 1)
    segment = journal.log.listed.segments[0]
    offsets = [int(offset) << 3 for offset in segment.offsets()[:8]]
    path = segment.path
    store.close()
    return journal, path, [*offsets, segment.used]


def test_every_bit_that_is_flipped_in_entries_is_found() -> None:
    disk, chance = MemoryFileSystem(), random.Random(7)
    _, path, offsets = written(disk)

    def flip(content: memoryview, at: int) -> None:
        content[at] ^= 1 << chance.randrange(8)

    found = [spoiled(disk, path, at, flip) for at in range(offsets[0], offsets[2], 3)]
    assert all(isinstance(one, JournalDamaged) for one in found)
    assert all(str(path) in str(one) for one in found)


def seal_again(content: memoryview, offsets: list[int]) -> None:
    """The checksums and the chain of all entries, as somebody computes them who has no key."""
    previous = 0
    for at, end in itertools.pairwise(offsets):
        content[at + 40 : at + 48] = previous.to_bytes(8, "little")
        state = xxhash.xxh3_64(content[at : at + 152])
        state.update(content[at + 160 : end])
        previous = state.intdigest()
        content[at + 152 : at + 160] = previous.to_bytes(8, "little")


def test_what_is_forged_with_right_checksums_is_found__altered_swapped_and_plain() -> None:
    disk = MemoryFileSystem()
    _, path, offsets = written(disk)
    size = offsets[1] - offsets[0]
    assert {end - at for at, end in itertools.pairwise(offsets)} == {size}

    def alter(content: memoryview, at: int) -> None:
        content[at] ^= 1
        seal_again(content, offsets)

    def swap(content: memoryview, at: int) -> None:
        one, two = bytes(content[at : at + size]), bytes(content[at + size : at + 2 * size])
        content[at : at + 2 * size] = two + one
        for place in (at, at + size):  # each says that it is where it is
            position = (place - offsets[0]) // size + 1
            content[place + 8 : place + 16] = position.to_bytes(8, "little")
            content[place + 144 : place + 152] = position.to_bytes(8, "little")
        seal_again(content, offsets)

    def replace(content: memoryview, at: int) -> None:
        head = entry_format.peek(content, at)
        assert head is not None
        place = (at - offsets[0]) // size
        owner = entry_format.owner_of(content, at)
        plain = entry_format.encode(marked(), place + 1, 1, 0, place, owner)
        content[at : at + plain.byte_count] = b"".join(plain.pieces)
        content[at + plain.byte_count : at + size] = bytes(size - plain.byte_count)
        content[at + 48 : at + 52] = (size - 160).to_bytes(4, "little")
        seal_again(content, offsets)

    for change, at in (
        (alter, offsets[3] + 24),  # its time
        (alter, offsets[3] + 400),
        (alter, offsets[4] - 1),
        (swap, offsets[3]),
        (swap, offsets[6]),
        (replace, offsets[5]),
        (replace, offsets[7]),
    ):
        copy = copied(disk)
        for mark in [one for one in contents(copy) if one.name in {"tail.mark"}]:
            copy.unlink(mark)
        error = spoiled(copy, path, at, change)
        assert isinstance(error, JournalDamaged), (change, at, error)
        assert "encrypted" in str(error)


def test_without_a_key_damage_is_found__and_nothing_is_read() -> None:
    disk = MemoryFileSystem()
    _, path, offsets = written(disk)
    plain = MemoryStore(file_system=copied(disk), segment_bytes=1 << 14, shards=1)
    journal = plain.open("t", 0)  # checksums and chain are of what is stored
    with pytest.raises(
        EncryptionKeyMissing, match="entry 1 is encrypted, and encryption.master_key"
    ):
        next(iter(journal.scan(0)))
    copy = copied(disk)
    contents(copy)[path][offsets[4] + 200] ^= 1
    with pytest.raises(JournalDamaged, match=f"{path}, offset {offsets[4]}"):
        MemoryStore(file_system=copy, segment_bytes=1 << 14, shards=1).open("t", 0)


def test_what_was_there_before_is_read__and_what_comes_is_encrypted() -> None:
    disk = MemoryFileSystem()
    store = MemoryStore(file_system=disk, segment_bytes=1 << 14, shards=1)
    journal = store.open("t", 0)
    journal.append([marked()], 0, 1)
    store.close()
    store = opened(disk)
    journal = store.open("t", 0)
    journal.append([marked()], 1, 1)
    assert [entry.extra for _, _, entry in journal.scan(0)] == [MARKER] * 2
    found = journal.read(np.array([1 << 20, 2 << 20]), ["payload"])
    assert found.to_pydict() == {"payload": [MARKER, MARKER]}
    kept = bytes(journal.log.listed.segments[0].memory().view)
    assert kept.count(MARKER) == 10  # those of the first entry


class NotingKey:
    """A key that notes the nonces that it is used with."""

    def __init__(self, key: bytes, used: list[tuple[bytes, bytes]]) -> None:
        self.key, self.used, self.real = key, used, new_aead(key)
        self.decrypt, self.decrypt_into = self.real.decrypt, self.real.decrypt_into

    def encrypt(self, nonce: bytes, content: Any, belonging: Any) -> bytes:
        self.used.append((self.key, nonce))
        return self.real.encrypt(nonce, content, belonging)

    def encrypt_into(self, nonce: bytes, content: Any, belonging: Any, target: memoryview) -> int:
        self.used.append((self.key, nonce))
        return self.real.encrypt_into(nonce, content, belonging, target)


def test_no_key_meets_a_nonce_twice__over_torn_appends_full_disks_and_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(data_keys, "new_aead", lambda key: NotingKey(key, used))
    chance, positions = np.random.default_rng(5), []
    files = FaultyFileSystem(MemoryFileSystem())
    cut_bytes, refused = 0, 0
    for life in range(12):
        store = MemoryStore(file_system=files, segment_bytes=1 << 18, shards=1)
        store.encrypt([MASTER])
        journal = store.open("t", 0)
        cut_bytes += journal.cut_bytes
        for turn in range(20):
            if turn % 7 == 3:
                files.fail("write", number=errno.ENOSPC)
            positions.append(journal.tail)
            try:
                journal.append([marked(1 + turn % 4)] * (1 + turn % 3), journal.tail, life)
            except ResourceExhausted:
                refused += 1
        if life % 2:
            journal.close()
            journal = store.open("t", 0)  # the log, too, is closed and opened in the same life
        if life % 3:
            # Written and not synced: the power cut takes part of it, and its positions come again.
            files.fail("sync")
            with pytest.raises(Unavailable):
                journal.append([marked(400)] * 2, journal.tail, life)
            files.power_cut(chance)
        else:
            store.close()
    assert cut_bytes > 0
    assert refused >= 12
    assert len(set(positions)) < len(positions)
    assert len(used) > 400
    assert len(set(used)) == len(used)
