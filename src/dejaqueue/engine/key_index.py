"""KeyIndex: from a key's hash to the live messages that have it, a thousand at a time.

Room: engine; pure, memory only. It finds out nothing about texts; the broker compares those.
Holds: a lookup gives every live message of a hash, and no other; a stall is no longer than moving
    the blocks of a few thousand entries.
See: keys.py for the hash; table.py, which has the whole hash of each message; rule 11;
    docs/internals/engine.md.

    block    of a hash: its place in the range of all hashes, so that a larger table has the same
             blocks in the same order. An entry never leaves its block.
    bucket   8 slots; an entry is in one of two buckets of its block, the emptier one when it came.
    slot     a tag of one byte (7 bits of the hash, 0x80 = used) and the low half of the sequence.

A lookup reads the 8 tags of each bucket as one number; the few entries with the same tag are
compared with the hash in the table of messages. Entries of messages that are done stay until their
slot is needed or the table is moved. A table that is getting full is moved block by block, some
with each insert, to one of another size; the memory behind is given back.
"""

from __future__ import annotations

import mmap
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dejaqueue.engine.arrays import Int64s, sort_pairs
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.table import Pages
from dejaqueue.schema.keys import NO_KEY

UInt64s = npt.NDArray[np.uint64]

SLOTS: Final = 8
_SLOT_BITS: Final = 3
_SLOT_PLACES = np.arange(SLOTS, dtype=np.int64)
_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_HALF, _TAG_BITS = np.uint64(32), np.uint64(0x7F)
_USED = np.uint64(0x80)
_FIRST_SHIFT, _SECOND_SHIFT = np.uint64(8), np.uint64(20)
_WRAP: Final = 1 << 32
_NONE = np.zeros(0, dtype=np.int64)
_NONE.flags.writeable = False

# A table is moved when 740/1024 of its slots are used, to one of which 430/1024 are: 11.9 bytes of
# 5-byte slots a message at most, and a second bucket that is hardly ever full as well.
_FULL_SHARE: Final = 740
_FRESH_SHARE: Final = 430
# A small table grows by more: moving entries is a fifth of what keys cost, and what a small one
# leaves free is some megabytes.
_FRESH_SMALL_SHARE: Final = 240
_SMALL_ROWS: Final = 1 << 20
_SHARES: Final = 1_024
_MOVED_PER_ROW: Final = 16
_CROWD_ROWS: Final = 4_096
_CROWD_SLOTS: Final = 6
"""Slots of a bucket that are filled before the other bucket is looked at."""
_SAMPLE_BLOCKS: Final = 16


class Rows(Protocol):
    """What the index asks the table of messages.

    Attributes:
        base: no message before this sequence is live.
        next_sequence: nor this one or any after it.
    """

    base: int

    @property
    def next_sequence(self) -> int:
        """See the attributes."""

    def live_key_hashes(self, sequences: Int64s) -> Int64s:
        """The key's hash of each message; NO_KEY where it is done or has none."""


def _mix(hashes: Int64s) -> UInt64s:
    """Other bits of the same hashes: partitions were chosen by some, and tests use small ones."""
    mixed = hashes.view(np.uint64) * _SPREAD
    mixed ^= mixed >> _HALF
    return mixed


class _Table:
    """Blocks of buckets.

    Attributes:
        block_count: how many blocks.
        used_count: slots that have an entry.
        tags, words: the tag of each slot, and those of each bucket as one number.
        lows: the low half of each slot's sequence.
    """

    def __init__(self, block_count: int, bucket_bits: int) -> None:
        self.block_count = block_count
        self.used_count = 0
        self.block_slots = SLOTS << bucket_bits
        self._bucket_bits = np.uint64(bucket_bits)
        self._bucket_mask = np.uint64((1 << bucket_bits) - 1)
        self._counted = np.uint64(block_count)
        slots = self.slot_count
        self._tag_pages = Pages(slots)
        self._low_pages = Pages(4 * slots)
        self.tags: npt.NDArray[np.uint8] = self._tag_pages.array(np.uint8)
        self.words: UInt64s = self._tag_pages.array(np.uint64)
        self.lows: npt.NDArray[np.uint32] = self._low_pages.array(np.uint32)

    @property
    def slot_count(self) -> int:
        """How many slots there are."""
        return self.block_count * self.block_slots

    def blocks(self, mixed: UInt64s) -> UInt64s:
        """Block of each hash."""
        blocks = mixed >> _HALF
        blocks *= self._counted
        blocks >>= _HALF
        return blocks

    def buckets(self, mixed: UInt64s) -> Int64s:
        """The two buckets of each hash, shape (2, n)."""
        both = np.empty((2, mixed.size), dtype=np.uint64)
        first, second = both
        np.right_shift(mixed, _HALF, out=first)
        first *= self._counted
        first >>= _HALF  # the block
        first <<= self._bucket_bits
        np.right_shift(mixed, _FIRST_SHIFT, out=second)
        second &= self._bucket_mask
        first |= second
        np.right_shift(mixed, _SECOND_SHIFT, out=second)
        second |= np.uint64(1)
        second &= self._bucket_mask
        second ^= first
        return both.view(np.int64)

    def find(self, mixed: UInt64s) -> tuple[Int64s, npt.NDArray[np.uint32]]:
        """Places in `mixed`, and the low half of the sequence of each entry with the same tag."""
        tags = mixed & _TAG_BITS
        tags |= _USED
        buckets = self.buckets(mixed)
        # A byte is zero where the tags are equal; a zero byte has its high bit set afterwards.
        apart = self.words[buckets]
        apart ^= tags * _ONES
        borrowed = apart - _ONES
        np.invert(apart, out=apart)
        apart &= borrowed
        apart &= _HIGHS
        hits = np.flatnonzero(apart)
        if not hits.size:
            return _NONE, np.zeros(0, dtype=np.uint32)
        slots = (buckets.ravel()[hits] << _SLOT_BITS)[:, None] + _SLOT_PLACES
        hits %= mixed.size
        rows, places = np.nonzero(self.tags[slots] == tags[hits, None])
        return hits[rows], self.lows[slots[rows, places]]

    def used_slots(self, first_block: int, end_block: int) -> Int64s:
        """The used slots of these blocks, ascending."""
        first, end = first_block * self.block_slots, end_block * self.block_slots
        return np.flatnonzero(self.tags[first:end]) + first

    def put(self, mixed: UInt64s, lows: npt.NDArray[np.uint32]) -> Int64s:
        """Add entries; returns the places of those for which there is no free slot."""
        tags = ((mixed & _TAG_BITS) | _USED).astype(np.uint8)
        both = self.buckets(mixed)
        rows: Int64s | None = None  # all
        if 4 * mixed.size > self.words.size or mixed.size > _CROWD_ROWS:
            rows = self._put_crowd(both[0], tags, lows)
        left: list[Int64s] = []
        while rows is None or rows.size:
            if rows is None:
                full, late = self._put_round(both, tags, lows)
            else:
                full, late = self._put_round(both[:, rows], tags[rows], lows[rows])
                full, late = rows[full], rows[late]
            if full.size:
                left.append(full)
            rows = late
        return np.concatenate(left) if left else _NONE

    def _put_round(
        self, both: Int64s, tags: npt.NDArray[np.uint8], lows: npt.NDArray[np.uint32]
    ) -> tuple[Int64s, Int64s]:
        """Add entries to the emptier of their buckets; returns the places of those for which both
        are full, and of those that came too late for a slot that several wanted."""
        # Slots of a bucket are used from the first on.
        used = np.bitwise_count(self.words[both] & _HIGHS)
        least = np.minimum(used[0], used[1])
        slots = np.where(used[1] < used[0], both[1], both[0])
        slots <<= _SLOT_BITS
        slots += least
        free = None
        if int(least.max()) == SLOTS:
            free = np.flatnonzero(least < SLOTS)
            slots, tags, lows = slots[free], tags[free], lows[free]
        self.lows[slots] = lows  # of several that want one slot the last one gets it
        won = self.lows[slots] == lows
        if won.all():
            self.tags[slots] = tags
            late = _NONE
        else:
            self.tags[slots[won]] = tags[won]
            late = np.flatnonzero(~won)
        self.used_count += slots.size - late.size
        if free is None:
            return _NONE, late
        return np.flatnonzero(least == SLOTS), free[late]

    def _put_crowd(
        self, buckets: Int64s, tags: npt.NDArray[np.uint8], lows: npt.NDArray[np.uint32]
    ) -> Int64s:
        """Add entries of which many want the same bucket; returns the places of those left."""
        low = int(buckets.min())
        near = buckets - low
        small = int(near.max()) < 1 << 16
        # Of 16 bits, numpy sorts by counting.
        order = (near.astype(np.uint16) if small else near).argsort(kind="stable")
        ordered = buckets[order]
        begins = np.ones(ordered.size, dtype=np.bool_)
        begins[1:] = ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(begins)
        ranks = np.arange(ordered.size) - np.repeat(starts, np.diff(starts, append=ordered.size))
        ranks += np.bitwise_count(self.words[ordered] & _HIGHS)
        fits = ranks < _CROWD_SLOTS
        slots = (ordered[fits] << _SLOT_BITS) + ranks[fits]
        chosen = order[fits]
        self.tags[slots] = tags[chosen]
        self.lows[slots] = lows[chosen]
        self.used_count += chosen.size
        return order[~fits]

    def give_back(self, first_block: int, end_block: int) -> None:
        """These blocks will not be read any more; whole pages of them go back to the machine."""
        for pages, size in ((self._tag_pages, 1), (self._low_pages, 4)):
            first = -(-first_block * self.block_slots * size // mmap.PAGESIZE) * mmap.PAGESIZE
            end = end_block * self.block_slots * size // mmap.PAGESIZE * mmap.PAGESIZE
            if end > first:
                pages.give_back(first, end - first)


class KeyIndex:
    """The keys of one partition."""

    def __init__(self, layout: Layout = STANDARD) -> None:
        self._bucket_bits = layout.key_bucket_bits
        self._table: _Table | None = None
        self._old: _Table | None = None
        self._moved = 0
        self._lost_hashes = _NONE
        self._lost_sequences = _NONE

    @property
    def slot_count(self) -> int:
        """Slots of the tables, used or not."""
        return sum(table.slot_count for table in (self._table, self._old) if table is not None)

    @property
    def is_moving(self) -> bool:
        """True if some blocks are still to be moved from the table before."""
        return self._old is not None

    @property
    def lost_count(self) -> int:
        """Entries that lie beside the tables."""
        return self._lost_hashes.size

    def reserve(self, count: int) -> None:
        """Make the empty index large enough for `count` keys."""
        if self._table is None:
            self._table = _Table(self._blocks_for(count), self._bucket_bits)

    def _blocks_for(self, count: int) -> int:
        share = _FRESH_SMALL_SHARE if count <= _SMALL_ROWS else _FRESH_SHARE
        slots = -(-count * _SHARES // share)
        return max(1, -(-slots // (SLOTS << self._bucket_bits)))

    def insert(self, hashes: Int64s, sequences: Int64s, rows: Rows) -> None:
        """Add messages, which `rows` has already; those of hash 0 have no key and are left out."""
        keyed = hashes != NO_KEY
        if not keyed.all():
            hashes, sequences = hashes[keyed], sequences[keyed]
        if not hashes.size:
            return
        self.reserve(hashes.size)
        table = self._table
        assert table is not None
        is_full = table.used_count + hashes.size > table.slot_count * _FULL_SHARE // _SHARES
        if is_full and self._old is None:
            self._begin_move(table, hashes.size, rows)
        self._put(_mix(hashes), hashes, sequences, rows)
        if self._old is not None:
            self._move(_MOVED_PER_ROW * hashes.size, rows)

    def _put(self, mixed: UInt64s, hashes: Int64s, sequences: Int64s, rows: Rows) -> None:
        lows = sequences.astype(np.uint32)
        for table, places in self._parts(mixed):
            part = mixed if places is None else mixed[places]
            left = table.put(part, lows if places is None else lows[places])
            if left.size:
                left = left if places is None else places[left]
                self._squeeze(table, mixed[left], hashes[left], sequences[left], rows)

    def _parts(self, mixed: UInt64s) -> list[tuple[_Table, Int64s | None]]:
        """Which table has which of these hashes; None = all of them."""
        assert self._table is not None
        if self._old is None:
            return [(self._table, None)]
        moved = self._old.blocks(mixed) < np.uint64(self._moved)
        parts: list[tuple[_Table, Int64s | None]] = []
        for table, places in (
            (self._table, np.flatnonzero(moved)),
            (self._old, np.flatnonzero(~moved)),
        ):
            if places.size:
                parts.append((table, places))
        return parts

    def _squeeze(
        self, table: _Table, mixed: UInt64s, hashes: Int64s, sequences: Int64s, rows: Rows
    ) -> None:
        """Put entries into slots of dead ones; those that find none, beside the tables."""
        slots = table.buckets(mixed).T << _SLOT_BITS
        slots = (slots[:, :, None] + _SLOT_PLACES).reshape(mixed.size, -1)
        dead = np.ones(slots.shape, dtype=np.bool_)
        for found in _sequences(table.lows[slots], rows):
            dead &= (rows.live_key_hashes(found.ravel()) == NO_KEY).reshape(slots.shape)
        is_lost = np.ones(mixed.size, dtype=np.bool_)
        taken: set[int] = set()
        for row in np.flatnonzero(dead.any(axis=1)).tolist():
            for slot in slots[row, dead[row]].tolist():
                if slot not in taken:
                    taken.add(slot)
                    table.tags[slot] = np.uint8((int(mixed[row]) & 0x7F) | 0x80)
                    table.lows[slot] = np.uint32(int(sequences[row]) & (_WRAP - 1))
                    is_lost[row] = False
                    break
        if is_lost.any():
            keep = rows.live_key_hashes(self._lost_sequences) != NO_KEY
            self._lost_hashes, self._lost_sequences = sort_pairs(
                np.concatenate([self._lost_hashes[keep], hashes[is_lost]]),
                np.concatenate([self._lost_sequences[keep], sequences[is_lost]]),
            )

    def candidates(self, hashes: Int64s, rows: Rows) -> tuple[Int64s, Int64s]:
        """Live messages with these hashes.

        Returns:
            Places in `hashes` and the sequences found for them, in order of (place, sequence).
            Cost: O(n), about 50 ns for each that nothing is found for.
        """
        if self._table is None:
            return _NONE, _NONE
        mixed = _mix(hashes)
        found_places: list[Int64s] = []
        found_sequences: list[Int64s] = []
        for table, part in self._parts(mixed):
            places, lows = table.find(mixed if part is None else mixed[part])
            if not places.size:
                continue
            places = places if part is None else part[places]
            wanted = hashes[places]
            for sequences in _sequences(lows, rows):
                same = rows.live_key_hashes(sequences) == wanted
                found_places.append(places[same])
                found_sequences.append(sequences[same])
        if self._lost_hashes.size:
            firsts = self._lost_hashes.searchsorted(hashes, "left")
            np.minimum(firsts, self._lost_hashes.size - 1, out=firsts)
            for place in np.flatnonzero(self._lost_hashes[firsts] == hashes).tolist():
                sequences = self._lost_sequences[self._lost_hashes == hashes[place]]
                sequences = sequences[rows.live_key_hashes(sequences) == hashes[place]]
                found_places.append(np.full(sequences.size, place, dtype=np.int64))
                found_sequences.append(sequences)
        if not any(part.size for part in found_places):
            return _NONE, _NONE
        places, sequences = np.concatenate(found_places), np.concatenate(found_sequences)
        keyed = hashes[places] != NO_KEY
        if not keyed.all():
            places, sequences = places[keyed], sequences[keyed]
        return _each_once(*sort_pairs(places, sequences))

    # --- moving to a table of another size

    def _begin_move(self, table: _Table, coming: int, rows: Rows) -> None:
        """Make room for what lives; how much that is, a few blocks tell."""
        step = max(1, table.block_count // _SAMPLE_BLOCKS)
        used = live = 0
        for block in range(0, table.block_count, step):
            slots = table.used_slots(block, block + 1)
            alive = np.zeros(slots.size, dtype=np.bool_)
            for sequences in _sequences(table.lows[slots], rows):
                alive |= rows.live_key_hashes(sequences) != NO_KEY
            used += slots.size
            live += int(np.count_nonzero(alive))
        live_count = table.used_count * live // max(1, used)
        blocks = max(self._blocks_for(live_count + coming), table.block_count // 2)
        self._old, self._moved = table, 0
        self._table = _Table(blocks, self._bucket_bits)

    def _move(self, entry_count: int, rows: Rows) -> None:
        """Move the next blocks, with about `entry_count` entries."""
        old = self._old
        assert old is not None
        first = self._moved
        end = min(old.block_count, first + -(-entry_count // old.block_slots))
        slots = old.used_slots(first, end)
        self._moved = end  # from here on these blocks are looked for in the new table
        for sequences in _sequences(old.lows[slots], rows):
            hashes = rows.live_key_hashes(sequences)
            alive = hashes != NO_KEY
            mixed = _mix(hashes)
            blocks = old.blocks(mixed)
            # One of another time, with the same low half, does not belong here.
            alive &= (blocks >= np.uint64(first)) & (blocks < np.uint64(end))
            if not alive.all():
                mixed, hashes, sequences = mixed[alive], hashes[alive], sequences[alive]
            if hashes.size:
                self._put(mixed, hashes, sequences, rows)
        old.give_back(first, end)
        if end == old.block_count:
            self._old = None
            self._put_lost(rows)

    def _put_lost(self, rows: Rows) -> None:
        """There may be room now for what had none."""
        hashes, sequences = self._lost_hashes, self._lost_sequences
        if hashes.size:
            self._lost_hashes = self._lost_sequences = _NONE
            alive = rows.live_key_hashes(sequences) != NO_KEY
            hashes, sequences = hashes[alive], sequences[alive]
            if hashes.size:
                self._put(_mix(hashes), hashes, sequences, rows)


def _sequences(lows: npt.NDArray[np.uint32], rows: Rows) -> list[Int64s]:
    """The sequences that these may be the low halves of: one array for each 2^32 between the
    oldest live message and the newest, mostly one."""
    base = rows.base
    nearest = (lows.astype(np.int64) - base) & (_WRAP - 1)
    nearest += base
    count = max(1, -(-(rows.next_sequence - base) // _WRAP))
    return [nearest + turn * _WRAP for turn in range(count)]


def _each_once(places: Int64s, sequences: Int64s) -> tuple[Int64s, Int64s]:
    """The same pairs, which are in order, each once."""
    again = (places[1:] == places[:-1]) & (sequences[1:] == sequences[:-1])
    if not again.any():
        return places, sequences
    keep = np.append(True, ~again)
    return places[keep], sequences[keep]
