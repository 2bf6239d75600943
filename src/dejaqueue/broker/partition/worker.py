"""A partition worker: the one thread that writes to its partitions.

Room: broker. Sleeps until a request comes or the next message is nearly due; no polling.
Holds: a partition is stepped by one thread only; a ring is never lost.
See: partition.py for what a step does; clock.py for the waiting.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable

from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.partition.requests import Request
from dejaqueue.broker.shard.committer import ApartCommitter, Committer
from dejaqueue.clock import Clock, Wake

log = logging.getLogger("dejaqueue.broker")


class PartitionWorker:
    """A thread that owns partitions.

    Args:
        name: of the thread, for logs and profiles.
        committer: appends for it; started and stopped with it.
        apart: the same for partitions whose journals are on a server; None = the committer.
    """

    def __init__(
        self, name: str, clock: Clock, committer: Committer, apart: ApartCommitter | None = None
    ) -> None:
        self._clock = clock
        self.committer = committer
        self.apart = apart
        self._wake = Wake()
        self._rung: deque[Partition] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._wakes: list[tuple[int, int, Partition]] = []
        self._wake_of: dict[Partition, int] = {}
        self._lent: set[Partition] = set()
        self._order = itertools.count()
        self._stopping = False
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

    @property
    def is_alive(self) -> bool:
        """True while both of its threads run."""
        return self._thread.is_alive() and self.committer.is_alive

    def submit(self, partition: Partition, request: Request) -> None:
        """Leave a request for a partition of this worker. Any thread; does not block."""
        partition.put(request)
        self.ring(partition)

    def ring(self, partition: Partition) -> None:
        """Have the partition stepped soon. Any thread."""
        self._rung.append(partition)
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
        for partition in due:
            self._step(partition, busy=busy)
        return bool(due)

    def _step(self, partition: Partition, *, busy: bool) -> None:
        try:
            next_us = partition.step(busy=busy)
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

    def _take_due(self) -> list[Partition]:
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
        return [one for one in due if one not in self._lent] if self._lent else list(due)
