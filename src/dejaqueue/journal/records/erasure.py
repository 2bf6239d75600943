"""What is to be gone from a log on a server, and from the copy of it here, as soon as can be.

Records go from the beginning only. So everything up to the last one that has some of what is erased
goes: what lives there is copied forward, two snapshots make replays begin behind it, the server
drops it.

Room: journal. `press` from any thread; what it asks for is done by the partition's own.
Holds: `press` says True only after the server has answered that it dropped the records, no file of
the copy has an entry of them, and no snapshot of before is on the server.
See: journal.py beside; duty 13 of journal/interface.py; duty 10 of interface.py;
docs/adr/0092-erasure-on-a-server.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from dejaqueue.errors import Fenced, Refused, Unavailable
from dejaqueue.journal.interface import Erasure, Int64s
from dejaqueue.journal.records.append_index import AppendIndex
from dejaqueue.journal.records.concurrency import Concurrency
from dejaqueue.journal.records.interface import RecordLog
from dejaqueue.journal.records.mirror import Mirror
from dejaqueue.journal.records.snapshot_objects import SnapshotObjects


class RecordErasure:
    """The erasures of one partition.

    Args:
        place: topic/partition, for errors.
        guard: held while the append index is changed.
        check_owner: raises Fenced if another owner has appended.
        ask: has the partition stepped, though nobody sends.

    Attributes:
        pressed: entries up to this position are to go.
        pressed_until: snapshots of before this position are.
    """

    def __init__(
        self,
        place: str,
        log: RecordLog,
        mirror: Mirror,
        guard: threading.Lock,
        concurrency: Concurrency,
        *,
        check_owner: Callable[[], None],
        ask: Callable[[], None],
    ) -> None:
        self._place, self._log, self._mirror = place, log, mirror
        self._guard, self._check_owner, self._ask = guard, check_owner, ask
        self._dropping = concurrency.lock()
        self._dropped_number = 0
        self.pressed = self.pressed_until = 0

    def check(self) -> None:
        """Raise Refused where the server cannot say that records are gone."""
        if not self._log.erases:
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
        self.pressed = max(self.pressed, last)
        self.pressed_until = max(self.pressed_until, erasure.until)
        with self._guard:
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
        return True

    def is_pressed(self, replayed: int, kept_position: int) -> bool:
        """See Journal.is_pressed.

        Args:
            replayed: up to where no replay needs entries.
            kept_position: up to where all snapshots that are kept have them.
        """
        return self.pressed > replayed or self.pressed_until > kept_position

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
