"""Extends the leases of a consumer until their messages are settled, many with one frame.

Room: client. Called by the consumer's core; extends on the alarm's thread.
Holds: a lease is extended while a third of it is left at least, and not once it was settled or has
ended; a consumer of however many small deliveries sends a few frames per lease and partition.
See: holding.py for the leases; broker/partition/extending.py for the other end.

`mutex` is the core's, which guards leases; it is never held while something is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from dejaqueue import limits
from dejaqueue.client.alarm import Alarm, Appointment
from dejaqueue.client.consuming.clock_offset import ClockOffset
from dejaqueue.client.consuming.holding import Lease, LeaseBook
from dejaqueue.clock import Clock
from dejaqueue.wire.frames import Reply

ALONE_ROWS = 1_000
"""From this many messages on, a delivery is extended as a whole, by its lease."""

Ask: TypeAlias = Callable[[list[Lease], int], Future[Reply] | None]
"""Extend leases of one partition by this many ms; None = no broker can be asked now."""


class Extender:
    """Leases that are extended by themselves."""

    def __init__(
        self, mutex: threading.Lock, clock: Clock, alarm: Alarm, offset: ClockOffset, ask: Ask
    ) -> None:
        self._mutex = mutex
        self._clock = clock
        self._alarm = alarm
        self._offset = offset
        self._ask = ask
        self._book = LeaseBook()
        self._next: Appointment | None = None
        self._next_us = 0
        self._closed = False

    def add(self, lease: Lease) -> None:
        """Under the mutex: a new lease; then `plan`, without the mutex."""
        self._book.plan(lease)

    def settled(self, lease: Lease, rows: int) -> None:
        """This many rows of it are settled. Under the mutex."""
        self._book.settled(lease, rows)

    def close(self) -> None:
        """Under the mutex: extend nothing any more."""
        self._closed = True
        if self._next is not None:
            self._next.cancel()

    def plan(self) -> None:
        """See to it that the next lease is extended in time."""
        with self._mutex:
            next_ms = self._book.next_ms()
            if next_ms is None or self._closed:
                return
            now_us = self._clock.now_us()
            at_us = next_ms * 1000 - self._offset.at(now_us)[0]
            if self._next is not None:
                if self._next_us <= at_us:
                    return
                self._next.cancel()
            self._next_us = at_us
            self._next = self._alarm.at(at_us, self._extend_due)

    def _extend_due(self) -> None:
        with self._mutex:
            self._next = None
            broker_ms = self._offset.broker_us(self._clock.now_us()) // 1000
            due = self._book.take_due(broker_ms)
        for lot in _lots(due):
            # What was leased ahead was leased for a little longer: no harm if the others are, too.
            lease_ms = max(lease.length_ms for lease in lot)
            answer = self._ask(lot, lease_ms)
            if answer is None:
                self._try_later(lot)
            else:
                answer.add_done_callback(partial(self._extended, lot, broker_ms + lease_ms))
        self.plan()

    def _extended(self, lot: list[Lease], end_ms: int, reply: Future[Reply]) -> None:
        answer = None if reply.exception() is not None else reply.result()
        if answer is None or answer.error is not None:
            self._try_later(lot)
            return
        lost = np.zeros(len(lot), dtype=bool)
        statuses = answer.statuses
        if statuses is not None and len(statuses):
            # Of a lease that was named alone there is a status for each of its rows.
            lost = statuses != 0 if len(lot) > 1 else np.array([statuses.all()])
        with self._mutex:
            for lease, is_lost in zip(lot, lost.tolist(), strict=True):
                if is_lost:
                    lease.end_ms = 0  # what is held of it is not handed over
                else:
                    lease.end_ms = end_ms
                    self._plan_if_lasting(lease)
        self.plan()

    def _try_later(self, lot: list[Lease]) -> None:
        """A little later, as long as the lease lasts."""
        pause_ms = max(min(lease.length_ms for lease in lot) / 30, 1)
        self._alarm.after(pause_ms, partial(self._plan_again, lot))

    def _plan_again(self, lot: list[Lease]) -> None:
        with self._mutex:
            for lease in lot:
                self._plan_if_lasting(lease)
        self.plan()

    def _plan_if_lasting(self, lease: Lease) -> None:
        broker_us = self._offset.broker_us(self._clock.now_us())
        if not self._closed and broker_us < lease.end_ms * 1000:
            self._book.plan(lease)


def _lots(leases: list[Lease]) -> Iterator[list[Lease]]:
    """Leases that go together in one frame: small ones of one partition."""
    of_partition = attrgetter("partition")
    small = [lease for lease in leases if lease.rows < ALONE_ROWS]
    yield from ([lease] for lease in leases if lease.rows >= ALONE_ROWS)
    for _, found in groupby(sorted(small, key=of_partition), of_partition):
        lot = list(found)
        for start in range(0, len(lot), limits.LEASES_PER_EXTENSION_MAX):
            yield lot[start : start + limits.LEASES_PER_EXTENSION_MAX]
