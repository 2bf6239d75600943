"""MessageTable: what is known of each message, as columns by sequence.

Room: engine; pure, memory only.
Holds: 19 bytes a message, and those of each wide column in slabs where a message has a value in
    it; a row that was never used, or is done, reads as DONE; a full slab whose rows are all done
    holds no memory; rows outside the window read as DONE.
See: layout.py for sizes; runs.py for the order of messages.

Each column is one flat array, so that any set of sequences is read and written by plain indexing.
A table of few rows has them on the heap and is copied as it grows. From one slab on they are over
anonymous pages, and grow by moving these (`mremap`), not by copying them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.engine.arrays import Int32s, Int64s, UInt8s, UInt16s, UInt32s
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.model import MessageState

DONE = np.uint8(MessageState.DONE)
SCHEDULED = np.uint8(MessageState.SCHEDULED)
LEASED = np.uint8(MessageState.LEASED)
DEAD = np.uint8(MessageState.DEAD)
STAGED = np.uint8(MessageState.STAGED)
STAGED_ACK = np.uint8(MessageState.STAGED_ACK)

COLUMNS: tuple[tuple[str, type[np.integer[Any]]], ...] = (
    ("dues_ms", np.int64),
    ("locators", np.int64),
    ("attempts", np.uint16),
    ("states", np.uint8),
)
"""The columns that every row has, in the order of a snapshot's slab."""
WIDE_COLUMNS: tuple[tuple[str, type[np.integer[Any]]], ...] = (
    ("expires_ms", np.int64),
    ("groups", np.int32),
    ("tag_sets", np.int32),
    ("urgencies", np.uint16),
    ("key_hashes", np.int64),
    ("payload_sizes", np.uint32),
    ("senders", np.int32),
    ("returned", np.uint8),
)
"""The columns that take memory only in slabs where a row has such; in the order of a slab."""
WIDE_BITS = {name: np.uint8(1 << place) for place, (name, _) in enumerate(WIDE_COLUMNS)}
"""The bit of each wide column in `slab_uses`."""
_ALL_COLUMNS = (*COLUMNS, *WIDE_COLUMNS)
ROW_BYTES = sum(np.dtype(dtype).itemsize for _, dtype in COLUMNS)
"""Bytes of one row over the columns that every row has."""
RETURNED = np.uint8(1)
"""In `returned`: its due time is when it came back, and nobody asked for it."""
FORGIVEN_MAX = 127
"""Attempts before a replay, or that nobody looked at, that are not counted; at most."""
URGENCY_FLIP = np.uint16(limits.PRIORITY_DEFAULT)
"""urgency ^ this = priority, so that the default priority is a zero, which takes no memory."""


def columns_of(uses: int) -> tuple[tuple[str, type[np.integer[Any]]], ...]:
    """The columns of a slab with these bits of wide columns, in its order."""
    wide = tuple(column for column in WIDE_COLUMNS if uses & int(WIDE_BITS[column[0]]))
    return (*COLUMNS, *wide)


_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
_GIVE_BACK = getattr(mmap, "MADV_DONTNEED", None)


class Pages:
    """Zeroed anonymous memory that grows in place or by moving its pages."""

    __slots__ = ("_map",)

    def __init__(self, byte_count: int) -> None:
        self._map = mmap.mmap(-1, byte_count, flags=_FLAGS)

    def array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """All of it as an array, which must be dropped before `grow`."""
        return np.frombuffer(self._map, dtype=dtype)

    def grow(self, byte_count: int) -> None:
        """Be this long; what is new reads as zero."""
        try:
            self._map.resize(byte_count)
        except (SystemError, BufferError, ValueError, OSError):
            # No mremap here, or somebody holds a view: copy instead.
            fresh = mmap.mmap(-1, byte_count, flags=_FLAGS)
            fresh[: len(self._map)] = self._map[:]
            self._map = fresh

    def give_back(self, first: int, byte_count: int) -> bool:
        """Make this stretch read as zero and take no memory; False if it cannot be done here."""
        if _GIVE_BACK is None or first % mmap.PAGESIZE or byte_count % mmap.PAGESIZE:
            return False
        self._map.madvise(_GIVE_BACK, first, byte_count)
        return True


class MessageTable:
    """The rows of all messages of a partition that are not done, and of some that are.

    Attributes:
        base: sequence of place 0, a multiple of the slab's rows.
        row_count: places in use; place `row_count` always exists and reads as DONE.
        dues_ms, states, attempts, locators: the columns by place. Views of them must not be kept
            across `append`, which may move them.
        expires_ms, groups, tag_sets, urgencies, key_hashes, payload_sizes, senders, returned:
            the wide columns, 0 where a row has none; a size is one more than it is; `returned`
            has RETURNED, and from bit 1 on how many attempts are not counted: before it was
            replayed, or looked at by nobody. Not to be read before `uses` says so: looking at a
            page that nobody wrote takes time.
        uses: names of the wide columns that were ever written.
        slab_lives: live rows by slab.
        slab_uses: bits of the wide columns in which a slab has a value.
        slab_dirty_mask: slabs written since they were last held.
        copies: held slabs as they were when they were held, by slab number from sequence 0.
    """

    dues_ms: Int64s
    locators: Int64s
    attempts: UInt16s
    states: UInt8s
    expires_ms: Int64s
    groups: Int32s
    tag_sets: Int32s
    urgencies: UInt16s
    key_hashes: Int64s
    payload_sizes: UInt32s
    senders: Int32s
    returned: UInt8s

    def __init__(self, layout: Layout = STANDARD, base: int = 0) -> None:
        self.uses: set[str] = set()
        self.slab_bits = layout.slab_bits
        self.slab_rows = 1 << layout.slab_bits
        self._first_rows = layout.first_rows
        self._rebase_slabs_min = layout.rebase_slabs_min
        self.base = base
        self.row_count = 0
        self._dead_slabs = 0
        self._held: dict[int, int] = {}
        self.copies: dict[int, memoryview] = {}
        self._allocate(1)

    def _allocate(self, slab_count: int) -> None:
        if slab_count == 1:
            self._begin_small()
        else:
            self._map_slabs(slab_count)
        self.slab_uses: UInt8s = np.zeros(slab_count, dtype=np.uint8)
        self.slab_lives: Int64s = np.zeros(slab_count, dtype=np.int64)
        self.slab_dirty_mask: npt.NDArray[np.bool_] = np.zeros(slab_count, dtype=np.bool_)

    def _begin_small(self) -> None:
        # Twelve maps of a slab were 3.4 MB of address space for one message. Nobody touched most
        # of it, but it counts against the bound of a process (RLIMIT_DATA), and maps are counted
        # by the kernel (vm.max_map_count): 8,000 topics with a message each ended a broker.
        rows = min(self._first_rows, self.slab_rows)
        self._pages: list[Pages] = []
        for name, dtype in _ALL_COLUMNS:
            setattr(self, name, np.zeros(rows, dtype=dtype))

    def _grow_small(self, row_count: int) -> None:
        rows = self._first_rows
        while rows <= row_count:
            rows *= 4
        written = self._written()
        for name, dtype in _ALL_COLUMNS:
            column = np.zeros(min(rows, self.slab_rows), dtype=dtype)
            if name in written:
                before = getattr(self, name)
                column[: before.size] = before
            setattr(self, name, column)

    def _map_slabs(self, slab_count: int) -> None:
        rows = slab_count << self.slab_bits
        self._pages = [Pages(rows * np.dtype(dtype).itemsize) for _, dtype in _ALL_COLUMNS]
        self._bind()

    def _bind(self) -> None:
        for pages, (name, dtype) in zip(self._pages, _ALL_COLUMNS, strict=True):
            setattr(self, name, pages.array(dtype))

    def _written(self) -> list[str]:
        return [name for name, _ in COLUMNS] + sorted(self.uses)

    @property
    def next_sequence(self) -> int:
        """The sequence that the next new row gets."""
        return self.base + self.row_count

    def begin_at(self, sequence: int) -> None:
        """Give the first row this sequence; there never was a row."""
        self.base = sequence & -self.slab_rows
        self.row_count = sequence - self.base
        self.reserve(self.row_count)

    def reserve(self, row_count: int) -> None:
        """Make room for `row_count` places and the one after them."""
        if row_count < self.states.size:
            return
        if row_count < self.slab_rows:
            self._grow_small(row_count)
            return
        slab_count = self.slab_lives.size
        needed = (row_count >> self.slab_bits) + 1
        # Pages that nobody touched cost nothing, so growing generously is free.
        slab_count = max(needed, slab_count + slab_count // 4 + 4)
        if self._pages:
            rows = slab_count << self.slab_bits
            for pages, (name, dtype) in zip(self._pages, _ALL_COLUMNS, strict=True):
                # The array goes first: a map with an array on it cannot grow, and would be copied.
                delattr(self, name)
                pages.grow(rows * np.dtype(dtype).itemsize)
            self._bind()
        else:
            self._leave_the_heap(slab_count)
        more = slab_count - self.slab_lives.size
        self.slab_lives = np.concatenate([self.slab_lives, np.zeros(more, dtype=np.int64)])
        none = np.zeros(more, dtype=np.bool_)
        self.slab_dirty_mask = np.concatenate([self.slab_dirty_mask, none])
        self.slab_uses = np.concatenate([self.slab_uses, np.zeros(more, dtype=np.uint8)])

    def _leave_the_heap(self, slab_count: int) -> None:
        kept = {name: getattr(self, name) for name in self._written()}
        self._map_slabs(slab_count)
        for name, rows in kept.items():
            getattr(self, name)[: rows.size] = rows

    def append(self, dues_ms: Int64s, first_locator: int, state: np.uint8 = SCHEDULED) -> int:
        """Add rows in that state, stored at `first_locator` and the locators after it.

        Returns:
            The sequence of the first row; the others follow.
        """
        count = dues_ms.size
        first_sequence = self.base + self.row_count
        if not count:
            return first_sequence
        self._rebase_if_mostly_dead()
        first, end = self.row_count, self.row_count + count
        self.reserve(end)
        self.dues_ms[first:end] = dues_ms
        self.states[first:end] = state
        # It is zero already, but its pages are touched here one after the other: a first lease of
        # a thousand scattered rows would fault a thousand pages, measured 10 ms.
        self.attempts[first:end] = 0
        self.locators[first:end] = np.arange(first_locator, first_locator + count, dtype=np.int64)
        self.row_count = end
        first_slab, last_slab = first >> self.slab_bits, (end - 1) >> self.slab_bits
        self.slab_dirty_mask[first_slab : last_slab + 1] = True
        if first_slab == last_slab:
            self.slab_lives[first_slab] += count
        else:
            for slab in range(first_slab, last_slab + 1):
                low = max(first, slab << self.slab_bits)
                self.slab_lives[slab] += min(end, (slab + 1) << self.slab_bits) - low
            if not self.slab_lives[first_slab]:  # it was not full yet when its last row died
                self._release(first_slab)
        return first_sequence

    def widen(self, places: Int64s, name: str, values: npt.NDArray[Any]) -> None:
        """Write a wide column of these rows; `will_write` was called, or they are new."""
        getattr(self, name)[places] = values
        self.uses.add(name)
        self.slab_uses[places >> self.slab_bits] |= WIDE_BITS[name]

    def fill(self, places: Int64s, name: str, values: npt.NDArray[Any] | np.integer[Any]) -> None:
        """As `widen`, of new rows, which lie one after the other."""
        if not places.size:
            return
        first, end = int(places[0]), int(places[-1]) + 1
        getattr(self, name)[first:end] = values
        self.uses.add(name)
        slabs = slice(first >> self.slab_bits, (end - 1 >> self.slab_bits) + 1)
        self.slab_uses[slabs] |= WIDE_BITS[name]

    def live_key_hashes(self, sequences: Int64s) -> Int64s:
        """The key's hash of each message, 0 where it is done or has none."""
        if "key_hashes" not in self.uses:
            return np.zeros(sequences.size, dtype=np.int64)
        places = self.places(sequences)
        hashes: Int64s = self.key_hashes[places]
        hashes *= self.states[places] != DONE
        return hashes

    def places(self, sequences: Int64s) -> Int64s:
        """Where these rows are; those outside the window at the place that reads as DONE."""
        places: Int64s = sequences - self.base
        # Seen as unsigned, negative places are huge: one comparison finds both ends.
        if places.size and int(places.view(np.uint64).max()) >= self.row_count:
            places[(places < 0) | (places >= self.row_count)] = self.row_count
        return places

    def will_write(self, places: Int64s) -> None:
        """These rows are about to be written: their slabs belong into the next snapshot.

        A slab that is held for the snapshot before is copied first.
        """
        slabs = places >> self.slab_bits
        self.slab_dirty_mask[slabs] = True
        if self._held:
            first_slab = self.base >> self.slab_bits
            for slab in np.unique(slabs).tolist():
                if first_slab + slab in self._held:
                    self._copy(first_slab + slab)

    def tries(self, places: Int64s) -> UInt16s:
        """Deliveries of each row that count: since it came in or was replayed, and looked at."""
        attempts: UInt16s = self.attempts[places]
        if "returned" in self.uses:
            attempts -= self.returned[places] >> 1
        return attempts

    def reach_back(self, sequence: int) -> None:
        """Have a place for this message, however long it is done. Cost: O(rows of the window)."""
        more = (self.base >> self.slab_bits) - (sequence >> self.slab_bits)
        if more <= 0:
            return
        self.copy_held()  # held slabs are known by where they are
        used, row_count = (self.row_count >> self.slab_bits) + 1, self.row_count
        kept = {name: getattr(self, name)[:row_count] for name in self._written()}
        lives, dirty_mask = self.slab_lives[:used], self.slab_dirty_mask[:used]
        uses = self.slab_uses[:used]
        self._allocate(used + more)
        shift = more << self.slab_bits
        self.base -= shift
        self.row_count += shift
        for name, rows in kept.items():
            # Slab by slab: what nobody wrote stays memory that nobody has.
            for slab in np.flatnonzero(lives).tolist():
                first, end = slab << self.slab_bits, min((slab + 1) << self.slab_bits, row_count)
                getattr(self, name)[first + shift : end + shift] = rows[first:end]
        self.slab_lives[more:] = lives
        self.slab_dirty_mask[more:] = dirty_mask
        self.slab_uses[more:] = uses
        self._dead_slabs = 0

    def blank(self, places: Int64s) -> None:
        """These rows, which are done, have no value in a wide column any more."""
        uses = self.slab_uses[places >> self.slab_bits]
        for name in self.uses:
            getattr(self, name)[places[uses & WIDE_BITS[name] != 0]] = 0

    def revived(self, places: Int64s) -> None:
        """These rows, each named once, were done and are live again; they are written."""
        slabs = places >> self.slab_bits
        self.slab_lives += np.bincount(slabs, minlength=self.slab_lives.size)
        self._dead_slabs = min(self._dead_slabs, int(slabs.min()))

    def hold(self, slab: int) -> None:
        """Keep the slab of this number from sequence 0 as it is now, until it is in `copies`."""
        place = slab - (self.base >> self.slab_bits)
        self._held[slab] = min((place + 1) << self.slab_bits, self.row_count)
        self.slab_dirty_mask[place] = False

    def copy_held(self, count: int | None = None) -> bool:
        """Copy `count` held slabs, None = all; True if none is left. Cost: 1.2 to 2.4 MB each."""
        for slab in list(self._held)[:count]:
            self._copy(slab)
        return not self._held

    def _copy(self, slab: int) -> None:
        first = (slab << self.slab_bits) - self.base
        end = self._held.pop(slab)
        uses = int(self.slab_uses[first >> self.slab_bits])
        columns = columns_of(uses)
        byte_count = (end - first) * sum(np.dtype(dtype).itemsize for _, dtype in columns)
        # Pages of its own, which go back to the machine when the copy is dropped: a gigabyte of
        # copies on the heap would stay there.
        pages = mmap.mmap(-1, byte_count + 1, flags=_FLAGS)
        at = 0
        for name, _ in columns:
            content = getattr(self, name)[first:end].data.cast("B")
            pages[at : at + content.nbytes] = content
            at += content.nbytes
        pages[at] = uses
        self.copies[slab] = memoryview(pages)[: at + 1]

    def drop_copies(self) -> None:
        """Forget what is held and what was copied."""
        self._held.clear()
        self.copies.clear()

    def finish(self, places: Int64s) -> None:
        """These live rows, each named once, are done."""
        if not places.size:
            return
        self.will_write(places)
        self.states[places] = DONE
        slabs = places >> self.slab_bits
        if slabs.size == 1:
            slab = int(slabs[0])
            self.slab_lives[slab] -= 1
            if not self.slab_lives[slab]:
                self._release(slab)
            return
        first = int(slabs.min())
        gone = np.bincount(slabs - first)
        lives = self.slab_lives[first : first + gone.size]
        lives -= gone
        if not lives.all():
            for slab in np.flatnonzero((lives == 0) & (gone > 0)).tolist():
                self._release(first + slab)

    def _release(self, slab: int) -> None:
        """Give the memory of a full, dead slab back."""
        first = slab << self.slab_bits
        end = first + self.slab_rows
        if end > self.row_count:
            return  # rows are still to come
        used = dict(columns_of(int(self.slab_uses[slab])))
        self.slab_uses[slab] = 0
        for pages, (name, _) in zip(self._pages, _ALL_COLUMNS, strict=True):
            if name not in used:
                continue
            column = getattr(self, name)
            size = column.itemsize
            if not pages.give_back(first * size, self.slab_rows * size):
                column[first:end] = 0
        full_slabs = self.row_count >> self.slab_bits
        while self._dead_slabs < full_slabs and not self.slab_lives[self._dead_slabs]:
            self._dead_slabs += 1

    def _rebase_if_mostly_dead(self) -> None:
        # Dead slabs take address space only, so moving the others down can wait until it is cheap.
        dead = self._dead_slabs
        used = (self.row_count >> self.slab_bits) + 1
        if dead < self._rebase_slabs_min or dead < 8 * (used - dead):
            return
        self.copy_held()  # held slabs are known by where they are
        first, end = dead << self.slab_bits, self.row_count
        kept = {name: getattr(self, name)[first:end].copy() for name in self._written()}
        slab_lives, dirty_mask = self.slab_lives[dead:used], self.slab_dirty_mask[dead:used]
        slab_uses = self.slab_uses[dead:used]
        self._allocate(used - dead)
        self.base += first
        self.row_count = end - first
        self.reserve(self.row_count)
        for name, rows in kept.items():
            getattr(self, name)[: rows.size] = rows
        self.slab_uses[:] = slab_uses
        self.slab_lives[:] = slab_lives
        self.slab_dirty_mask[:] = dirty_mask
        self._dead_slabs = 0

    def live_slabs(self) -> Iterator[tuple[int, int]]:
        """(first place, end place) of each slab that has live rows, ascending."""
        for slab in np.flatnonzero(self.slab_lives).tolist():
            first = slab << self.slab_bits
            yield first, min(first + self.slab_rows, self.row_count)

    def live_places(self) -> Iterator[Int64s]:
        """Places of live rows, ascending, slab by slab."""
        for first, end in self.live_slabs():
            yield np.flatnonzero(self.states[first:end]) + first


def row_locators(position: int, count: int) -> Int64s:
    """Locators of rows 0 … count-1 of the entry at `position`."""
    first = position << limits.ROW_BITS
    return np.arange(first, first + count, dtype=np.int64)
