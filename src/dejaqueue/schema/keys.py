"""Keys: a stable hash of them, in columns.

Room: schema; pure, memory only. The engine knows hashes only; the broker compares the stored keys,
and a producer finds the shard of a topic by them.
Holds: a key's hash is the same for ever and on every machine, and never 0.
See: rule 11; engine/key_index.py; tests/unit/schema/test_keys.py for the golden hashes.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]

NO_KEY = 0
"""The hash of a message without a key."""

# Odd numbers with bits set irregularly, fixed for ever: hashes made with them are in every journal.
_SEED = np.uint64(0x5851F42D4C957F2D)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xD6E8FEB86659FD93)
_MIX_2 = np.uint64(0xA0761D6478BD642F)
_HALF, _THIRD = np.uint64(32), np.uint64(29)
_EIGHT = np.int64(8)
_ONE_SEED, _ONE_SPREAD, _ONE_MIX_1, _ONE_MIX_2 = map(int, (_SEED, _SPREAD, _MIX_1, _MIX_2))
# Bits of a little-endian word that belong to its first n bytes.
_WORD_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)


def hash_keys(offsets: npt.NDArray[np.integer], data: npt.NDArray[np.uint8]) -> Int64s:
    """Hashes of the keys data[offsets[i]:offsets[i + 1]], UTF-8, at once.

    Args:
        offsets: int32 or int64 array, shape (n + 1,), ascending.
        data: uint8 array with all bytes; may be a view.

    Returns:
        int64 array, shape (n,); never 0, not even for "".
        Cost: O(bytes of the keys) in numpy, one pass per 8 bytes of the longest key.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:].astype(np.int64) - starts
    hashes = lengths.astype(np.uint64) * _SPREAD
    hashes ^= _SEED
    longest = int(lengths.max()) if lengths.size else 0
    if longest > 0:
        first, last = int(offsets[0]), int(offsets[-1])
        # Eight bytes more, because a word is read even where the last key has one byte left.
        padded = np.zeros(last - first + 8, dtype=np.uint8)
        padded[: last - first] = data[first:last]
        starts -= first
        # Each byte as the start of an 8-byte word: the words overlap, nothing is copied.
        words = np.ndarray((last - first + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
        # Words that all keys have in full need no masks, which saves most of the work.
        shortest = int(lengths.min())
        whole = shortest >> 3 << 3
        for _ in range(0, whole, 8):
            _mix(hashes, words[starts])
            starts += _EIGHT
        if shortest == longest:
            if longest > whole:
                _mix(hashes, words[starts] & _WORD_MASKS[longest - whole])
            longest = whole
        lengths -= whole
        rows = None if longest == whole else np.flatnonzero(lengths)
        for _ in range(-(-(longest - whole) // 8)):
            rows = _mix_words(hashes, words, starts, lengths, rows)
    _mix(hashes, hashes >> _HALF)
    signed = hashes.view(np.int64)
    signed[signed == NO_KEY] = 1  # 0 says that there is no key
    return signed


def hash_key(key: bytes) -> int:
    """The hash of one key, as `hash_keys` has it: plain numbers of Python, 3 µs for a short key
    where arrays of one row take 25."""
    hashed = _word(len(key) * _ONE_SPREAD) ^ _ONE_SEED
    for start in range(0, len(key), 8):
        hashed = _mix_one(hashed, int.from_bytes(key[start : start + 8], "little"))
    hashed = _mix_one(hashed, hashed >> 32)
    signed = hashed - (1 << 64) if hashed >> 63 else hashed
    return signed or 1  # 0 says that there is no key


def _word(number: int) -> int:
    return number & 0xFFFF_FFFF_FFFF_FFFF


def _mix_one(hashed: int, word: int) -> int:
    """As `_mix`, of one."""
    hashed ^= _word(word * _ONE_SPREAD)
    hashed = _word(hashed * _ONE_MIX_1)
    hashed ^= hashed >> 32
    hashed = _word(hashed * _ONE_MIX_2)
    return hashed ^ hashed >> 29


def _mix_words(
    hashes: npt.NDArray[np.uint64],
    words: npt.NDArray[np.uint64],
    starts: Int64s,
    lengths: Int64s,
    rows: Int64s | None,
) -> Int64s | None:
    """Mix the next word of each key that has one into its hash; return the rows that have more."""
    if rows is None:
        part = words[starts] & _WORD_MASKS[np.minimum(lengths, _EIGHT)]
        _mix(hashes, part)
    else:
        part = words[starts[rows]] & _WORD_MASKS[np.minimum(lengths[rows], _EIGHT)]
        mixed = hashes[rows]
        _mix(mixed, part)
        hashes[rows] = mixed
    lengths -= _EIGHT
    starts += _EIGHT
    more = np.flatnonzero(lengths > 0)
    return None if more.size == hashes.size else more


def _mix(hashes: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64]) -> None:
    """Mix words into hashes, in place: multiply and fold the upper half down, twice. The words are
    changed, which saves an array."""
    words *= _SPREAD
    hashes ^= words
    hashes *= _MIX_1
    hashes ^= hashes >> _HALF
    hashes *= _MIX_2
    hashes ^= hashes >> _THIRD
