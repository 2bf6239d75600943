"""Covers: entries to bytes and back; garbage is JournalDamaged and nothing else."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dejaqueue import limits
from dejaqueue.errors import BadRequest, EncryptionKeyMissing, InternalError, JournalDamaged
from dejaqueue.journal.encryption.master_keys import LocalMasterKey
from dejaqueue.journal.format import (
    CHECKSUM_OFFSET,
    DIRECTORY_OFFSET,
    HEADER_BYTES,
    JOINED_BYTES_MAX,
    SCRATCH_BYTES,
    SCRATCH_BYTES_MAX,
    Encoded,
    Scratch,
    decode,
    encode,
    peek,
)
from dejaqueue.journal.interface import TEXT_COLUMNS, Entry, EntryKind, TextColumn
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.testing.journal_conformance import make_enqueue, text_column, values_of

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def joined(encoded: Encoded) -> bytes:
    content = b"".join(encoded.pieces)
    assert len(content) == encoded.byte_count
    return content


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    rows = draw(st.integers(0, 6))
    column = st.lists(INT64, min_size=rows, max_size=rows).map(lambda v: np.array(v, np.int64))
    values = st.lists(st.binary(max_size=30), min_size=rows, max_size=rows).map(text_column)
    return Entry(
        kind=draw(st.sampled_from(EntryKind)),
        now_ms=draw(INT64),
        params=draw(st.tuples(INT64, INT64, INT64, INT64)),
        rows=rows,
        ints=tuple(draw(st.lists(column, max_size=8))),
        texts=draw(st.dictionaries(st.sampled_from(TEXT_COLUMNS), values)),
        extra=draw(st.binary(max_size=40)),
    )


@given(entries(), st.integers(1, limits.POSITION_MAX), st.integers(0, (1 << 64) - 1))
def test_what_was_encoded_is_decoded(entry: Entry, position: int, number: int) -> None:
    encoded = encode(entry, position, number, number ^ 5, position - 1)
    decoded = decode(memoryview(joined(encoded)))
    assert values_of(decoded.entry) == values_of(entry)
    head = decoded.head
    assert (head.position, head.epoch, head.previous) == (position, number, number ^ 5)
    assert head.after == position - 1
    assert (decoded.checksum, decoded.byte_count) == (encoded.checksum, encoded.byte_count)
    assert encoded.byte_count % 8 == 0


@given(st.binary(max_size=600))
def test_garbage_is_refused(content: bytes) -> None:
    with pytest.raises(JournalDamaged):
        decode(memoryview(content))


@settings(max_examples=300)
@given(st.data())
def test_garbage_with_a_right_checksum_is_refused_or_decoded(data: st.DataObject) -> None:
    content = bytearray(joined(encode(make_enqueue(np.random.default_rng(3), 5), 1, 1, 0, 0)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(content), 400) - 4))
        struct.pack_into("<I", content, at, data.draw(st.integers(0, (1 << 32) - 1)))
    checked = bytes(content[:CHECKSUM_OFFSET] + content[HEADER_BYTES:])
    struct.pack_into("<Q", content, CHECKSUM_OFFSET, xxhash.xxh3_64_intdigest(checked))
    try:
        values_of(decode(memoryview(content)).entry)
    except (JournalDamaged, EncryptionKeyMissing) as refusal:  # or it says that it is encrypted
        assert str(refusal)


def test_every_bit_of_an_entry_is_covered() -> None:
    content = joined(encode(make_enqueue(np.random.default_rng(1), 2, 20), 1, 1, 0, 0))
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(JournalDamaged):
            decode(memoryview(flipped))


def test_large_columns_are_not_copied() -> None:
    payload = pa.py_buffer(bytes(JOINED_BYTES_MAX))
    offsets = np.array([0, payload.size], dtype=np.int32)
    texts = {"payload": TextColumn(offsets, payload)}
    encoded = encode(Entry(EntryKind.ENQUEUE, 0, rows=1, texts=texts), 1, 1, 0, 0)
    addresses = {np.frombuffer(piece, np.uint8).ctypes.data for piece in encoded.pieces if piece}
    assert payload.address in addresses
    content = memoryview(joined(encoded))
    found = decode(content).entry.texts["payload"].data
    assert isinstance(found, memoryview)
    assert found.obj is content.obj


def test_the_layout_is_as_documented() -> None:
    entry = Entry(
        EntryKind.MOVE,
        -2,
        (1, 2, 3, 4),
        2,
        (np.array([7, 8]),),
        {"key": text_column([b"a", b"bc"])},
    )
    content = joined(encode(entry, 5, 6, 9, 4))
    assert content[:8] == b"DQE1" + struct.pack("<HH", 1, 7)
    assert struct.unpack_from("<QQqQQ", content, 8) == (5, 6, -2, 4, 9)
    assert struct.unpack_from("<IIII4q", content, 48) == (len(content) - 160, 2, 1, 0, 1, 2, 3, 4)
    offsets_at, data_at = struct.unpack_from("<II", content, DIRECTORY_OFFSET)
    assert (offsets_at, data_at) == (176, 192)
    assert struct.unpack_from("<qq", content, 160) == (7, 8)
    assert struct.unpack_from("<iii", content, offsets_at) == (0, 1, 3)
    assert content[data_at:] == b"abc" + bytes(5)
    assert not any(content[104:152])
    checksum = xxhash.xxh3_64_intdigest(content[:152] + content[160:])
    assert struct.unpack_from("<Q", content, 152) == (checksum,)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(EntryKind.ACK, 0, rows=2, ints=(np.zeros(3, np.int64),)),
        Entry(EntryKind.ACK, 0, rows=0, ints=(np.zeros(0, np.int64),) * 9),
        Entry(EntryKind.ENQUEUE, 0, rows=2, texts={"key": text_column([b"a"])}),
        Entry(EntryKind.ENQUEUE, 0, rows=1, texts={"other": text_column([b"a"])}),
        Entry(EntryKind.ENQUEUE, 0, rows=1, texts={"key": TextColumn(np.array([0, 9]), b"a")}),
        Entry(EntryKind.ENQUEUE, 0, rows=1, texts={"key": TextColumn(np.array([1, 1]), b"a")}),
        Entry(EntryKind.ENQUEUE, 0, rows=2, texts={"key": TextColumn(np.array([0, 2, 1]), b"ab")}),
    ],
)
def test_columns_that_do_not_fit_are_our_bug(entry: Entry) -> None:
    with pytest.raises(InternalError):
        encode(entry, 1, 1, 0, 0)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(BadRequest, match=f"at most {limits.BATCH_ROWS_MAX} rows"):
        encode(Entry(EntryKind.ACK, 0, rows=limits.BATCH_ROWS_MAX + 1), 1, 1, 0, 0)


def test_peek_sees_no_header_beyond_the_end() -> None:
    content = memoryview(joined(encode(Entry(EntryKind.ACK, 0), 3, 1, 0, 2)))
    head = peek(content, 0)
    assert head is not None
    assert head.position == 3
    assert peek(content[:-1], 0) is None
    assert peek(content, 8) is None


def test_an_encrypted_entry_is_as_long_as_it_was_and_32_bytes__small_or_in_scratch() -> None:
    store = MemoryStore()
    store.encrypt([LocalMasterKey(b"m" * 32)])
    assert store.encryption is not None
    cipher, scratch = store.encryption.cipher("log"), Scratch()
    random = np.random.default_rng(3)
    for rows in (3, 5_000, 40):
        entry = make_enqueue(random, rows)
        plain = joined(encode(entry, 7, 1, 2, 6))
        for one in (
            encode(entry, 7, 1, 2, 6, cipher=cipher),
            encode(entry, 7, 1, 2, 6, cipher=cipher, scratch=scratch),
        ):
            stored = joined(one)
            assert len(stored) == len(plain) + 32
            assert stored[160 : 160 + 64] != plain[160 : 160 + 64]
            back = decode(memoryview(stored), cipher=cipher)
            assert (back.head.position, back.checksum) == (7, one.checksum)
            assert values_of(back.entry) == values_of(entry)
            assert one.clear in (b"", plain[:4] + one.clear[4:160] + plain[160:])
            with pytest.raises(EncryptionKeyMissing):
                decode(memoryview(stored))
        scratch.reset()


def test_scratch_is_used_again__and_what_was_taken_of_it_stays_until_then() -> None:
    scratch = Scratch()
    first = scratch.take(SCRATCH_BYTES - 8)
    first[:5] = b"first"
    grown = scratch.take(SCRATCH_BYTES)
    grown[:5] = b"grown"
    assert bytes(first[:5]) == b"first"
    scratch.reset()
    assert bytes(scratch.take(5)) == b"grown"  # the larger one
    scratch.take(SCRATCH_BYTES_MAX)
    scratch.reset()
    assert bytes(scratch.take(5)) == bytes(5)  # much is given back
