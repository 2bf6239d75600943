"""Where each append is: from positions of entries to numbers of records, and back.

One row of a numpy array for each append that is still on the server, 60 bytes, and how many of its
rows are live. A snapshot keeps the array in blocks that never change, so that a start reads only
the records behind the snapshot.

Room: journal. Arithmetic on arrays; asks no server.
Holds: appends are dense in positions and ordered in both; `live` is counted from `adopt` on.
See: journal.py beside; duty 7 of journal/interface.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.errors import InternalError
from dejaqueue.journal.interface import Int64s

ROW: Final = np.dtype(
    [
        ("position", "<i8"),
        ("number", "<i8"),
        ("chain", "<u8"),
        ("entry_chain", "<u8"),
        ("byte_count", "<i8"),
        ("readable_bytes", "<i8"),
        ("rows", "<u4"),
        ("entries", "<u4"),
        ("parts", "<u4"),
    ]
)
"""An append: its first position and record; the checksums of the record and of the entry before
it; bytes of its entries, and of those with rows that locators name; such rows; entries; records."""
BLOCK: Final = 4096
"""Appends in one block of a snapshot."""
SPARSE_PERCENT: Final = 25
SPARSE_ROWS_MAX: Final = 100_000


class ReadCursor(NamedTuple):
    """Where reading goes on.

    Attributes:
        number: of the next record.
        chain: checksum of the record before it.
        position: of the next entry.
        entry_chain: checksum of the entry before it.
    """

    number: int = 1
    chain: int = 0
    position: int = 1
    entry_chain: int = 0


class Block(NamedTuple):
    """A stretch of a append index as bytes.

    Attributes:
        name: says which; the same name has the same content.
    """

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SnapshotIndex:
    """What a snapshot knows of the records before it; JSON within the manifest's meta."""

    meta: str
    identity: int
    base: int
    stand: ReadCursor
    blocks: tuple[str, ...]

    def encode(self) -> str:
        """As it is stored."""
        facts = {
            "meta": self.meta,
            "identity": self.identity,
            "base": self.base,
            "stand": list(self.stand),
            "blocks": list(self.blocks),
        }
        return json.dumps(facts)

    @staticmethod
    def decode(text: str) -> SnapshotIndex:
        """Read what `encode` made."""
        facts: dict[str, Any] = json.loads(text)
        stand = ReadCursor(*facts["stand"])
        return SnapshotIndex(
            facts["meta"], facts["identity"], facts["base"], stand, tuple(facts["blocks"])
        )


class AppendIndex:
    """The appends of one partition. The caller takes care that one thread at a time changes it.

    Attributes:
        stand: where the next append goes.
        byte_count: bytes of the appends that are kept.
    """

    def __init__(self) -> None:
        self._rows: npt.NDArray[Any] = np.zeros(64, dtype=ROW)
        self._positions, self._live = np.zeros((2, 64), dtype=np.int64)  # searched, so by itself
        self._base = 0  # ordinal of the first row; a multiple of BLOCK
        self._count = 0
        self._kept = 0  # rows before it are not on the server any more
        self._adopted = False
        self.stand = ReadCursor()
        self.byte_count = 0

    def __len__(self) -> int:
        return self._count - self._kept

    @property
    def tail(self) -> int:
        """Position of the last entry."""
        return self.stand.position - 1

    @property
    def first_position(self) -> int:
        """Position of the first entry that is kept; that of the next one if none is."""
        return int(self._positions[self._kept]) if len(self) else self.stand.position

    @property
    def first_number(self) -> int:
        """Number of the first record that is kept; that of the next one if none is."""
        return int(self._rows[self._kept]["number"]) if len(self) else self.stand.number

    # --- growing -------------------------------------------------------------------------------

    def add(
        self,
        after: ReadCursor,
        *,
        entries: int,
        byte_count: int,
        rows: int,
        readable_bytes: int,
        parts: int,
        number: int,
        chain_before: int,
    ) -> None:
        """Note an append; `after` is where the next one goes."""
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(self._count, dtype=ROW)])
            more = np.zeros(self._count, dtype=np.int64)
            self._positions = np.concatenate([self._positions, more])
            self._live = np.concatenate([self._live, more])
        before = self.stand
        # fmt: off
        self._rows[self._count] = (
            before.position, number, chain_before, before.entry_chain, byte_count, readable_bytes,
            rows, entries, parts,
        )
        # fmt: on
        self._positions[self._count] = before.position
        self._live[self._count] = rows
        self._count += 1
        self.byte_count += byte_count
        self.stand = after

    # --- snapshots -----------------------------------------------------------------------------

    def stand_after(self, position: int) -> tuple[int, ReadCursor]:
        """Ordinal and place of the append that holds the entry behind `position`."""
        if position >= self.tail:
            return self._base + self._count, self.stand
        place = int(self._positions[: self._count].searchsorted(position + 1, side="right")) - 1
        row = self._rows[place]
        stand = ReadCursor(
            *(int(row[name]) for name in ("number", "chain", "position", "entry_chain"))
        )
        return self._base + place, stand

    def blocks(self, end: int) -> tuple[int, list[Block]]:
        """The appends before ordinal `end` as blocks, and the ordinal of the first."""
        blocks = []
        for start in range(self._base, end, BLOCK):
            stop = min(start + BLOCK, end)
            content = self._rows[start - self._base : stop - self._base].tobytes()
            blocks.append(Block(f"appends-{start}-{stop}", content))
        return self._base, blocks

    @staticmethod
    def restored(base: int, blocks: list[bytes], stand: ReadCursor) -> AppendIndex:
        """The append index of a snapshot."""
        append_index = AppendIndex()
        rows: npt.NDArray[Any] = np.frombuffer(b"".join(blocks), dtype=ROW)
        if len(rows):
            append_index._rows = rows.copy()
            append_index._positions = rows["position"].astype(np.int64)
            append_index._live = rows["rows"].astype(np.int64)
            append_index._count = len(rows)
            append_index.byte_count = int(rows["byte_count"].sum())
        append_index._base, append_index.stand = base, stand
        return append_index

    # --- finding -------------------------------------------------------------------------------

    def places(self, positions: Int64s) -> Int64s:
        """Per position the row of its append, -1 if it is not kept."""
        rows = self._positions[self._kept : self._count].searchsorted(positions, side="right") - 1
        gone = (rows < 0) | (positions >= self.stand.position)
        return np.where(gone, -1, rows + self._kept)

    def holding(self, positions: Int64s) -> npt.NDArray[Any]:
        """The appends (of type ROW, each once, in order) that hold these entries; a copy."""
        places = self.places(positions)
        rows: npt.NDArray[Any] = self._rows[np.unique(places[places >= 0])]
        return rows

    def end_of(self, positions: Int64s) -> int:
        """The last entry of the last append that holds one of these; 0 if none is kept."""
        rows = self.holding(positions)
        return int(rows[-1]["position"]) + int(rows[-1]["entries"]) - 1 if len(rows) else 0

    def bytes_to(self, position: int) -> int:
        """Bytes of the kept appends that begin at a position or before."""
        return int(self._rows[self._kept : self._end_place(position)]["byte_count"].sum())

    def run(self, position: int, end: int, byte_count_max: int) -> Int64s:
        """First positions of the kept appends from the one that holds `position` on, before
        `end`: at least one, if there is one, and more of them up to so many bytes."""
        start = max(self._end_place(position) - 1, self._kept)
        stop = self._end_place(end - 1)
        byte_counts = np.cumsum(self._rows[start:stop]["byte_count"])
        count = max(int(byte_counts.searchsorted(byte_count_max, side="right")), 1)
        return self._positions[start : min(start + count, stop)].copy()

    def _end_place(self, position: int) -> int:
        """The row behind the last kept append that begins at a position or before."""
        kept = self._positions[self._kept : self._count]
        return self._kept + int(kept.searchsorted(position, side="right"))

    def chain_at(self, position: int) -> tuple[int, int] | None:
        """The first append that begins at `position` or behind: (position, entry checksum before).

        None if there is none; the end of the journal counts as a beginning.
        """
        place = self._kept + int(self._positions[self._kept : self._count].searchsorted(position))
        if place < self._count:
            return int(self._positions[place]), int(self._rows[place]["entry_chain"])
        if position <= self.stand.position:
            return self.stand.position, self.stand.entry_chain
        return None

    def chain_before(self, position: int) -> tuple[int, int] | None:
        """The last append that begins at `position` or before, likewise."""
        if position >= self.stand.position:
            return self.stand.position, self.stand.entry_chain
        kept = self._positions[self._kept : self._count]
        place = self._kept + int(kept.searchsorted(position, side="right")) - 1
        if place < self._kept:
            return None
        return int(self._positions[place]), int(self._rows[place]["entry_chain"])

    # --- what is live --------------------------------------------------------------------------

    def adopt(self, live_locators: Iterator[Int64s]) -> None:
        """These rows are live, and no others."""
        self._live[:] = 0
        for locators in live_locators:
            self._live[: self._count] += self._counts(locators)
        self._adopted = True

    def free(self, locators: Int64s) -> None:
        """These rows are live no longer."""
        if not self._adopted or not len(locators):
            return
        places = self.places(np.asarray(locators, dtype=np.int64) >> limits.ROW_BITS)
        places = places[places >= 0]
        if not len(places):
            return
        first = int(places.min())
        counts = np.bincount(places - first)
        live = self._live[first : first + len(counts)]
        live -= counts
        if (live < 0).any():
            raise InternalError("rows of a journal were freed that were not live")

    def _counts(self, locators: Int64s) -> Int64s:
        places = self.places(np.asarray(locators, dtype=np.int64) >> limits.ROW_BITS)
        return np.bincount(places[places >= 0], minlength=self._count)

    def adopt_nothing(self) -> None:
        """A journal that was empty: what is appended is counted from now on."""
        self._adopted = True

    def give_back(self, limit: int) -> int | None:
        """Let go of what neither a live row nor a replay needs.

        Args:
            limit: entries up to this position are not needed for any replay.

        Returns:
            The number of the first record that is still needed, None if nothing new is free.
        """
        if not self._adopted or not len(self) or self._live[self._kept] > 0:
            return None
        dead = self._whole_before(limit)
        live = np.flatnonzero(self._live[self._kept : self._kept + dead])
        free = int(live[0]) if len(live) else dead
        if not free:
            return None
        rows = self._rows[self._kept : self._count]
        self.byte_count -= int(rows["byte_count"][:free].sum())
        self._kept += free
        number = int(rows[free]["number"]) if free < len(rows) else self.stand.number
        self._trim()
        return number

    def live_to(self, position: int) -> Int64s | None:
        """Where the live rows of the kept appends lie that begin at a position or before, as one
        range of positions; None if there are none, or they were not counted yet."""
        end = self._end_place(position)
        if not self._adopted or end == self._kept:
            return None
        places = self._kept + np.flatnonzero(self._live[self._kept : end])
        if not len(places):
            return None
        last = self._rows[places[-1]]
        span = [int(self._positions[places[0]]), int(last["position"]) + int(last["entries"]) - 1]
        return np.array([span], dtype=np.int64)

    def dead_to(self) -> int | None:
        """The last entry up to which there was something that is not live any more: a row of the
        append that holds it, or what was given back; None if live rows were not counted yet."""
        if not self._adopted:
            return None
        kept = slice(self._kept, self._count)
        dead = np.flatnonzero(self._rows["rows"][kept] > self._live[kept])
        if not len(dead):
            return self.first_position - 1
        last = self._rows[self._kept + int(dead[-1])]
        return int(last["position"]) + int(last["entries"]) - 1

    def _whole_before(self, limit: int) -> int:
        """How many of the kept appends end at position `limit` or before."""
        if limit >= self.tail:
            return len(self)
        starts = self._positions[self._kept : self._count]
        # An append ends where the next begins.
        return max(int(starts.searchsorted(limit + 1, side="right")) - 1, 0)

    def _trim(self) -> None:
        """Forget whole blocks that are gone, once they are half of it."""
        gone = self._kept // BLOCK * BLOCK
        if 2 * gone <= self._count:
            return
        self._rows = self._rows[gone:].copy()
        self._positions = self._positions[gone:].copy()
        self._live = self._live[gone:].copy()
        self._base += gone
        self._count -= gone
        self._kept -= gone

    def sparse(self, limit: int) -> Int64s | None:
        """The longest beginning that is mostly dead, as one range of positions.

        Only a beginning can be dropped at a server, so that one live row keeps what is behind it.
        """
        if not self._adopted or not len(self):
            return None
        count = self._whole_before(limit)
        if not count:
            return None
        rows = self._rows[self._kept : self._kept + count]
        live = self._live[self._kept : self._kept + count]
        live_bytes = rows["readable_bytes"] * live // np.maximum(rows["rows"], 1)
        mostly_dead = 100 * np.cumsum(live_bytes) < SPARSE_PERCENT * np.cumsum(rows["byte_count"])
        indices = np.flatnonzero(mostly_dead & (np.cumsum(live) > 0))
        if not len(indices):
            return None
        end = min(int(indices[-1]), int(np.cumsum(live).searchsorted(SPARSE_ROWS_MAX)))
        last = rows[end]
        return np.array(
            [[rows[0]["position"], last["position"] + last["entries"] - 1]], dtype=np.int64
        )
