"""A partition worker: the one thread that writes to its partitions.

Room: broker. Sleeps until a request comes or the next message is nearly due; no polling.
Holds: a partition is stepped by one thread only; a ring is never lost; what several do in one turn
is appended together, within TURN_US_MAX.
See: partition.py for what a step does; clock.py for the waiting; ADR 88.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.partition.requests import Request
from dejaqueue.broker.shard.committer import ApartCommitter, Committer
from dejaqueue.broker.shard.opening import JournalDoor, Opening, read_together
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import Unavailable

log = logging.getLogger("dejaqueue.broker")

TURN_US_MAX = 5_000
"""Partitions that are stepped in one turn share their syncs, and so wait for each other's steps:
when a turn has taken so long, what it has so far is appended and answered."""
READ_MAX = 32
"""Partitions that are read in one go at the beginning of a turn: 1 ms each where they are new."""


class PartitionWorker:
    """A thread that owns partitions.

    Args:
        name: of the thread, for logs and profiles.
        committer: appends for it; started and stopped with it.
        apart: the same for partitions whose journals are on a server; None = the committer.

    Attributes:
        note_used: told which topics, by name and number, are about to be read, so that it can note
            in one go that they are used.
    """

    def __init__(
        self, name: str, clock: Clock, committer: Committer, apart: ApartCommitter | None = None
    ) -> None:
        self._clock = clock
        self.committer = committer
        self.apart = apart
        self._wake = Wake()
        self._rung: deque[Partition] = deque()
        self._landed: deque[Partition] = deque()
        self._is_landing = False
        self._calls: deque[Callable[[], None]] = deque()
        self._wakes: list[tuple[int, int, Partition]] = []
        self._wake_of: dict[Partition, int] = {}
        self._lent: set[Partition] = set()
        self.note_used: Callable[[Sequence[tuple[str, int]]], None] = lambda _: None
        self._order = itertools.count()
        self._stopping = self._has_ended = False
        self._end_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Return when the threads run."""
        self.committer.start()
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, then return. Twice or before start is fine."""
        self._stopping = True
        self._wake.ring()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self.committer.stop()
        if self.apart is not None:
            self.apart.stop()
        with self._end_lock:
            self._has_ended = True
            for partition in dict.fromkeys(self._rung):
                partition.inbox.turn_away(_ended())

    @property
    def is_alive(self) -> bool:
        """True while both of its threads run."""
        return self._thread.is_alive() and self.committer.is_alive

    def submit(self, partition: Partition, request: Request) -> None:
        """Leave a request for a partition of this worker. Any thread; does not block.

        One that comes when the worker has ended is answered with Unavailable: nobody takes it.
        """
        partition.put(request)
        self.ring(partition)
        if self._has_ended:
            with self._end_lock:
                partition.inbox.turn_away(_ended())

    def ring(self, partition: Partition) -> None:
        """Have the partition stepped soon. Any thread."""
        self._rung.append(partition)
        self._wake.ring()

    def landed(self, partition: Partition) -> None:
        """Have the partition go on, as what it had appended is durable, or has failed. Any
        thread."""
        self._landed.append(partition)
        if not self._is_landing:
            self._wake.ring()

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on this thread, between steps. Any thread; it must not raise."""
        self._calls.append(function)
        self._wake.ring()

    def forget(self, partition: Partition) -> None:
        """Never step this partition again. Only on this worker's thread."""
        self._wake_of.pop(partition, None)

    def lend(self, partition: Partition) -> None:
        """Leave this partition alone until it is given back: another thread steps it meanwhile.
        Only on this worker's thread."""
        self.forget(partition)
        self._lent.add(partition)

    def give_back(self, partition: Partition) -> None:
        """Step it again, soon. Any thread; the one it was lent to does not touch it any more."""

        def take() -> None:
            self._lent.discard(partition)
            self._rung.append(partition)

        self.call(take)

    def _run(self) -> None:
        busy = False
        while True:
            busy = self.turn(busy=busy)
            if not busy:
                if self._stopping and not self._calls:
                    return
                self._clock.wait_until(self.next_us, self._wake)

    @property
    def next_us(self) -> int | None:
        """When the next partition wants to be stepped, in clock µs; None = when rung."""
        return self._wakes[0][0] if self._wakes else None

    def turn(self, *, busy: bool) -> bool:
        """Step every partition that is rung or due, once; False if there was none.

        Args:
            busy: the turn before found something to do, too.
        """
        due = self._take_due()
        landed = self._take_landed()
        count = len(due) + sum(partition not in due for partition in landed)
        if count == 1:
            for _ in self._step_all(due, landed, busy=busy):
                pass
        elif count:
            self._step_together(due, landed, busy=busy)
        return count > 0

    def _step_all(
        self, due: dict[Partition, None], landed: dict[Partition, None], *, busy: bool
    ) -> Iterator[Partition]:
        """Step each, those first whose appends have landed."""
        for partition in landed:
            is_due = partition in due
            self._step(partition, partial(partition.go_on, is_due=is_due, busy=busy))
            yield partition
        for partition in due:
            if partition not in landed:
                self._step(partition, partial(partition.step, busy=busy))
                yield partition

    def _step_together(
        self, due: dict[Partition, None], landed: dict[Partition, None], *, busy: bool
    ) -> None:
        """Step several: what they do is appended together, with a sync for each log."""
        self._read_together([*landed, *due])
        committer, clock = self.committer, self._clock
        committer.begin_turn()
        began_us = clock.now_us()
        for _ in self._step_all(due, landed, busy=True):
            if clock.now_us() - began_us >= TURN_US_MAX:
                self._append_turn(busy=busy)
                committer.begin_turn()
                began_us = clock.now_us()
        self._append_turn(busy=busy)

    def _read_together(self, partitions: list[Partition]) -> None:
        """Read those that are not read yet, a few of them: first uses share syncs, too. The others
        are read one by one, or in the next turn."""
        unread: list[tuple[Partition, JournalDoor]] = []
        for partition in partitions:
            if (door := partition.door_to_read) is not None:
                unread.append((partition, door))
                if len(unread) == READ_MAX:
                    break
        if len(unread) < 2:
            return
        self.note_used([door.used_as for _, door in unread if door.used_as is not None])
        opened = read_together([(partition.core, door) for partition, door in unread])
        for (partition, _), one in zip(unread, opened, strict=True):
            partition.opening = Opening(one)

    def _append_turn(self, *, busy: bool) -> None:
        """Append what partitions did, and have them go on if that was done on this thread."""
        self._is_landing = not busy
        try:
            self.committer.end_turn(behind=busy)
        finally:
            # First: what lands from here on rings, what landed before is taken now.
            self._is_landing = False
        if not busy:
            for partition in self._take_landed():
                self._step(partition, partial(partition.go_on, is_due=False, busy=False))

    def _take_landed(self) -> dict[Partition, None]:
        """Partitions whose appends have landed; one that was lent is stepped when it comes back."""
        landed: dict[Partition, None] = {}
        for _ in range(len(self._landed)):
            partition = self._landed.popleft()
            if partition not in self._lent:
                landed[partition] = None
        return landed

    def _step(self, partition: Partition, step: Callable[[], int | None]) -> None:
        try:
            next_us = step()
        except Exception:  # our bug: the other partitions of this thread must go on
            topic, number = partition.core.topic().name, partition.number
            facts = {"topic": topic, "partition": number}
            log.exception("topic %s, partition %d: a step broke off", topic, number, extra=facts)
            next_us = None
        self._plan(partition, next_us)

    def _plan(self, partition: Partition, next_us: int | None) -> None:
        """Step it then; None = when it is rung."""
        if next_us is None:
            self._wake_of.pop(partition, None)
        elif self._wake_of.get(partition) != next_us:
            self._wake_of[partition] = next_us
            heapq.heappush(self._wakes, (next_us, next(self._order), partition))

    def _take_due(self) -> dict[Partition, None]:
        """Partitions to step now: rung ones and those whose time has come."""
        due: dict[Partition, None] = {}
        while self._calls:
            self._calls.popleft()()
        for _ in range(len(self._rung)):
            due[self._rung.popleft()] = None
        now_us = self._clock.now_us() if self._wakes else 0
        while self._wakes:
            wake_us, _, partition = self._wakes[0]
            if self._wake_of.get(partition) != wake_us:
                heapq.heappop(self._wakes)  # an older plan
            elif wake_us <= now_us:
                heapq.heappop(self._wakes)
                del self._wake_of[partition]
                if partition in due or partition.wants_step(now_us):
                    due[partition] = None
                else:
                    self._plan(partition, partition.later_us)
            else:
                break
        for one in self._lent:
            due.pop(one, None)
        return due


def _ended() -> Unavailable:
    return Unavailable("the broker is stopping", 1_000)
