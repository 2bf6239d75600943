"""Keys: a stable hash of them in columns, and the index from hash to live messages.

Room: engine; pure, memory only. The engine knows hashes only; the broker compares the stored keys.
Holds: a key's hash is the same for ever and on every machine, and never 0; a lookup gives every
    live message of a hash, and no other.
See: rule 11; tests/unit/engine/test_keys.py for the golden hashes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dejaqueue.engine.commands import Int64s
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.runs import Mask, Run, first_to_merge, sort_pairs

NO_KEY = 0
"""The hash of a message without a key."""

# Odd numbers with bits set irregularly, fixed for ever: they are in every journal.
_SEED = np.uint64(0x5851F42D4C957F2D)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xD6E8FEB86659FD93)
_MIX_2 = np.uint64(0xA0761D6478BD642F)
_HALF, _THIRD = np.uint64(32), np.uint64(29)
_EIGHT = np.int64(8)
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
    if lengths.size and int(lengths.max()) > 0:
        first, last = int(offsets[0]), int(offsets[-1])
        padded = np.zeros(last - first + 8, dtype=np.uint8)
        padded[: last - first] = data[first:last]
        starts -= first
        # Every place of the bytes seen as the start of an 8-byte word.
        words = np.ndarray((last - first + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
        rows = None if int(lengths.min()) > 0 else np.flatnonzero(lengths)  # None = all
        for _ in range(-(-int(lengths.max()) // 8)):
            rows = _mix_words(hashes, words, starts, lengths, rows)
    _mix(hashes, hashes >> _HALF)
    signed = hashes.view(np.int64)
    signed[signed == NO_KEY] = 1
    return signed


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
    """Mix words into hashes, in place: multiply and fold the upper half down, twice."""
    hashes ^= words * _SPREAD
    hashes *= _MIX_1
    hashes ^= hashes >> _HALF
    hashes *= _MIX_2
    hashes ^= hashes >> _THIRD


IsLive = Callable[[Int64s], Mask]
"""sequences -> which of these messages are scheduled or leased."""


class KeyIndex:
    """Sorted runs of (hash, sequence), merged by tiers; done messages drop out at merges.

    A sequence is never used again, so an entry is dead exactly if its message is.

    Attributes:
        small: runs, longest first, each at least as long as all after it.
        sealed: long runs, looked through for dead entries in turn as new ones come.
    """

    def __init__(self, layout: Layout = STANDARD) -> None:
        self._seal_rows = layout.key_seal_rows
        self._sweep_next = 0
        self.small: list[Run] = []
        self.sealed: list[Run] = []

    def insert(self, hashes: Int64s, sequences: Int64s, is_live: IsLive) -> None:
        """Add messages; those of hash 0 have no key and are left out."""
        mask = hashes != NO_KEY
        if not mask.all():
            hashes, sequences = hashes[mask], sequences[mask]
        if hashes.size:
            self._add(Run(*sort_pairs(hashes, sequences)), is_live)

    def _add(self, run: Run, is_live: IsLive) -> None:
        small = self.small
        small.append(run)
        small.sort(key=len, reverse=True)
        first = first_to_merge(small)
        if first == len(small) - 1 and len(small[first]) < self._seal_rows:
            return
        # Looking which are live takes as long as merging, so that is left to the larger merges.
        is_large = sum(map(len, small[first:])) >= self._seal_rows // 16
        merged = _merge_live(small[first:], is_live if is_large else None)
        del small[first:]
        if merged is None:
            return
        if len(merged) < self._seal_rows:
            small.append(merged)
            return
        merged.move_to_own_pages()
        self.sealed.append(merged)
        self._sweep(is_live)

    def _sweep(self, is_live: IsLive) -> None:
        """Look through two sealed runs for dead entries: two for each that is added, so that
        dead ones can never be more than the live ones for long."""
        for _ in range(min(2, len(self.sealed) - 1)):
            self._sweep_next %= len(self.sealed)
            run = self.sealed[self._sweep_next]
            merged = _merge_live([run], is_live)
            if merged is not None and len(merged) > len(run) // 2:
                if len(merged) < len(run):
                    merged.move_to_own_pages()
                    self.sealed[self._sweep_next] = merged
                self._sweep_next += 1
                continue
            del self.sealed[self._sweep_next]
            if merged is not None:
                self.small.append(merged)  # joins the others at the next merge
                self.small.sort(key=len, reverse=True)

    def candidates(self, hashes: Int64s, is_live: IsLive) -> tuple[Int64s, Int64s]:
        """Live messages with these hashes.

        Returns:
            Places in `hashes` and the sequences found for them, in order of (place, sequence).
            Cost: O(n log m) per run for n hashes among m entries.
        """
        # In order, searches for neighbours touch the same memory.
        rows = np.argsort(hashes, kind="stable")
        rows = rows[hashes[rows] != NO_KEY]
        wanted = hashes[rows]
        found_rows: list[Int64s] = []
        found_sequences: list[Int64s] = []
        for run in self.sealed + self.small:
            firsts = run.keys.searchsorted(wanted, "left")
            np.minimum(firsts, run.keys.size - 1, out=firsts)
            hits = np.flatnonzero(run.keys[firsts] == wanted)
            if not hits.size:
                continue
            firsts = firsts[hits]
            counts = run.keys.searchsorted(wanted[hits], "right") - firsts
            found_rows.append(np.repeat(rows[hits], counts))
            before = np.cumsum(counts) - counts
            places = np.arange(int(counts.sum())) + np.repeat(firsts - before, counts)
            found_sequences.append(run.sequences[places])
        if not found_rows:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        places, sequences = np.concatenate(found_rows), np.concatenate(found_sequences)
        mask = is_live(sequences)
        return sort_pairs(places[mask], sequences[mask])

    def entries(self, is_live: IsLive) -> tuple[Int64s, Int64s]:
        """(hashes, sequences) of all live messages with a key, ascending by sequence."""
        runs = self.sealed + self.small
        merged = _merge_live(runs, is_live) if runs else None
        if merged is None:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        sequences, hashes = sort_pairs(merged.sequences, merged.keys)
        return hashes, sequences


def _merge_live(runs: list[Run], is_live: IsLive | None) -> Run | None:
    """One run of the live entries of these runs, or of all; None if there are none."""
    keys = np.concatenate([run.keys for run in runs])
    sequences = np.concatenate([run.sequences for run in runs])
    if is_live is not None:
        mask = is_live(sequences)
        if not mask.all():
            keys, sequences = keys[mask], sequences[mask]
    if not keys.size:
        return None
    return Run(*(sort_pairs(keys, sequences) if len(runs) > 1 else (keys, sequences)))
