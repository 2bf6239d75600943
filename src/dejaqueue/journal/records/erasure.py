"""What is to be gone from a log on a server, and from the copy of it here, as soon as can be.

Records go from the beginning only. So everything up to the last one that has some of what is erased
goes: what lives there is copied forward, two snapshots make replays begin behind it, the server
drops it.

Room: journal. `press` and `press_dead` from any thread; what they ask for is done by the
partition's own.
Holds: `press` says True only after the server has answered that it dropped the records, no file of
the copy has an entry of them, and no snapshot of before is on the server.
See: journal.py beside; duty 13 of journal/interface.py; duty 10 of interface.py;
docs/adr/0092-erasure-on-a-server.md.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from dejaqueue.errors import Fenced, Refused, Unavailable
from dejaqueue.journal.interface import Erasure, Int64s
from dejaqueue.journal.records.append_index import AppendIndex
from dejaqueue.journal.records.concurrency import Concurrency
from dejaqueue.journal.records.interface import RecordLog, RecordStore
from dejaqueue.journal.records.mirror import Mirror
from dejaqueue.journal.records.snapshot_objects import SnapshotObjects


class RecordErasure:
    """The erasures of one partition.

    Args:
        place: topic/partition, for errors.
        guard: held while the append index, or what is pressed, is changed.
        check_owner: raises Fenced if another owner has appended.
        ask: has the partition stepped, though nobody sends.

    Attributes:
        pressed: entries up to this position are to go.
        urgent: up to this one somebody waits for it.
        pressed_until: snapshots of before this position are to go.
    """

    def __init__(
        self,
        place: str,
        store: RecordStore,
        log: RecordLog,
        mirror: Mirror,
        guard: threading.Lock,
        concurrency: Concurrency,
        *,
        check_owner: Callable[[], None],
        ask: Callable[[], None],
    ) -> None:
        self._place, self._store, self._log, self._mirror = place, store, log, mirror
        self._guard, self._check_owner, self._ask = guard, check_owner, ask
        self._dropping = concurrency.lock()
        self._dropped_number = 0
        self._cleared = 0
        """No file of the copy, or of the store, has an entry up to this position."""
        self._deaths: deque[tuple[int, int]] = deque()
        """When it was looked for dead rows, and up to which entry there were some."""
        self._has_looked = False
        self.pressed = self.urgent = self.pressed_until = 0

    def check(self) -> None:
        """Raise Refused where the server cannot say that records are gone."""
        if not self._store.erases:
            raise Refused(
                f"{self._place}: nothing can be erased by itself in a journal of this kind: its "
                f"records lie beside those of other partitions"
            )

    def drop_below(self, number: int) -> None:
        """Have the server forget what is below a record; from any thread. Raises Unavailable."""
        with self._dropping:
            if self._dropped_number < number:
                self._log.drop_before(number)
                self._dropped_number = number

    def settle(self, index: AppendIndex) -> None:
        """Have the server forget what was given back, and files here, too, if that was pressed.

        Raises:
            Unavailable.
        """
        with self._guard:
            first, number, pressed = index.first_position, index.first_number, self.pressed
        self.drop_below(number)
        if self._cleared < pressed < first:
            self._mirror.erase_before(first)
            self._store.overwrite_deleted()
            self._cleared = pressed

    def plan(self, index: AppendIndex, positions: Int64s, until: int) -> Erasure:
        """See Journal.plan_erasure; the unit is the beginning of the log, by its last entry."""
        self.check()
        with self._guard:
            last = index.end_of(np.asarray(positions, dtype=np.int64))
            byte_count = index.bytes_to(last)
        return Erasure((last,) if last else (), until, byte_count)

    def press(self, index: AppendIndex, snapshots: SnapshotObjects, erasure: Erasure) -> bool:
        """See Journal.press.

        Raises:
            Refused, Unavailable.
        """
        self.check()
        last = max(erasure.units, default=0)
        with self._guard:
            self.urgent = max(self.urgent, last)
            self.pressed = max(self.pressed, last)
            self.pressed_until = max(self.pressed_until, erasure.until)
            first, number = index.first_position, index.first_number
        if first <= last or snapshots.kept_position < erasure.until:
            self._ask()
            return False
        # What was given back before is to be gone as well: nobody finds it any more.
        self.drop_below(number)
        self._mirror.erase_before(first)
        try:
            snapshots.erase_older(self._check_owner)
        except Fenced as fenced:
            raise Unavailable(f"{self._place}: {fenced}; ask its new owner", 1_000) from fenced
        self._store.overwrite_deleted()
        return True

    def press_dead(self, index: AppendIndex, now_ms: int, age_ms: int) -> None:
        """See JournalStore.press_dead. What was there when it was opened counts as dead for long:
        nobody knows since when.

        Raises:
            Unavailable: the server, or the copy, has some of it still; it is tried again next time.
        """
        with self._guard:
            dead_to = index.dead_to()
            if dead_to is None:
                return  # the partition has not said yet which rows are live
            found_ms = now_ms if self._has_looked else now_ms - age_ms
            self._has_looked = True
            self._deaths.append((found_ms, dead_to))
            while self._deaths and now_ms - self._deaths[0][0] >= age_ms:
                self.pressed = max(self.pressed, self._deaths.popleft()[1])
            is_there = index.first_position <= self.pressed
        if is_there:
            self._ask()
        self.settle(index)

    def is_pressed(self, replayed: int, kept_position: int) -> bool:
        """See Journal.is_pressed.

        Args:
            replayed: up to where no replay needs entries.
            kept_position: up to where all snapshots that are kept have them.
        """
        # Where nobody waits, entries may be kept for a backup: more snapshots would not help.
        is_kept = max(self.pressed, self.pressed_until) > kept_position
        return is_kept or self.urgent > replayed

    def is_urgent(self, replayed: int, kept_position: int) -> bool:
        """See Journal.is_urgent; arguments as of `is_pressed`."""
        return self.urgent > replayed or self.pressed_until > kept_position

    def has_rows(self, index: AppendIndex) -> bool:
        """See Journal.has_rows_pressed."""
        if index.first_position > self.pressed:
            return False
        with self._guard:
            return index.live_to(self.pressed) is not None

    def rows(self, index: AppendIndex) -> Int64s | None:
        """Where live rows lie that are to be copied forward, as `Journal.sparse` says it.

        The caller holds the guard.
        """
        return index.live_to(self.pressed)
