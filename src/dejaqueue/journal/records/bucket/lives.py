"""The lives of brokers in a bucket: all partitions of this one append to one log together.

The logs of other lives are read here, and taken over from.

While one container is on its way, whatever else is to be appended waits, and goes into the next one
together: so the number of requests goes by their time, not by how many partitions there are.

Room: journal. Any thread.
Holds: one container is on its way at a time; an append is answered when its container is stored in
the place behind all that is known here; if something else has that place, it is read first, and an
append that does not go on from there is Fenced.
See: life_log.py; ownership_log.py, whose appends these are; ADR 0080.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Final

from dejaqueue.clock import Clock, Wake
from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import DejaQError, Fenced, Unavailable
from dejaqueue.journal.records.bucket.container import decode_head, encode_records
from dejaqueue.journal.records.bucket.dead_lives import bury
from dejaqueue.journal.records.bucket.life_log import LifeLog, ReadSeveral
from dejaqueue.journal.records.bucket.ownership import Ownership

log = logging.getLogger(__name__)

CONTAINER_BYTES_MAX: Final = 32 << 20
"""Bytes of records of a container, about: behind them the next one begins."""
FOLLOWING_US: Final = 10_000
"""So long those who were just answered are waited for, who may have more: what has waited for them
would miss this container, and wait for one more."""
INDEX_CONTAINERS: Final = 256
"""The index is stored again when there are so many containers behind it: who takes over reads no
more than these one by one."""


class Waiting:
    """An append that somebody waits for.

    Args:
        name: of the partition, for errors.
        ownership: of it; of this life.
    """

    __slots__ = ("after", "byte_count", "contents", "error", "is_done", "name", "ownership")

    def __init__(self, name: str, ownership: Ownership, after: int, contents: list[bytes]) -> None:
        self.name, self.ownership = name, ownership
        self.after, self.contents = after, contents
        self.byte_count = sum(len(one) for one in contents)
        self.is_done = False
        self.error: DejaQError | None = None

    def end(self, error: DejaQError | None = None) -> None:
        """It is stored, or is not."""
        self.error, self.is_done = error, True


class Lives:
    """All logs of lives in a bucket.

    Args:
        between_ms: from the beginning of one container to that of the next at least, while more
            is to be appended; what comes after a silence does not wait.
        clock: what that goes by.
        run: does something in the background.

    Attributes:
        life: id of this one.
        own: its log.
        containers: that were stored here; for metrics.
    """

    def __init__(
        self,
        bucket: Bucket,
        read_several: ReadSeveral,
        clock: Clock,
        run: Callable[[Callable[[], None]], object],
        between_ms: int,
    ) -> None:
        self._bucket, self._read_several, self._run = bucket, read_several, run
        self._clock, self._between_us = clock, between_ms * 1_000
        self._others: dict[str, LifeLog] = {}
        self._guard = threading.Lock()
        self._begin()
        self._queue: list[Waiting] = []
        self._turn = threading.Lock()
        self._next_us = self._stored_us = 0
        self._answered: set[str] = set()
        """Ownerships whose appends are in the container that was stored last."""
        self._closing, self._came = Wake(), Wake()
        self._is_indexing = self._has_buried = False
        self._links: dict[str, Callable[[], bool]] = {}
        self.containers = 0

    def _begin(self) -> None:
        """Be another life than before: somebody has ended that one, or there was none."""
        with self._guard:
            self._is_unclear = False
            self.life = secrets.token_hex(12)
            self.own = self._log_of(self.life)

    def _log_of(self, life: str) -> LifeLog:
        return LifeLog(self._bucket, life, self._read_several)

    def log_of(self, life: str) -> LifeLog:
        """What is known of a life's log."""
        if life == self.life:
            return self.own
        with self._guard:
            return self._others.setdefault(life, self._log_of(life))

    def begun(self, ownership: str, is_linked: Callable[[], bool]) -> None:
        """Note an ownership of this life.

        Args:
            is_linked: whether anybody may still need its records, once somebody has taken it.
        """
        with self._guard:
            self._links[ownership] = is_linked

    def ask_again(self) -> None:
        """Read what became of a container whose answer was lost, as far as it is there now."""
        if self._is_unclear:
            self.own.refresh()

    # --- appending ------------------------------------------------------------------------------

    def append(self, waiting: Waiting) -> None:
        """Append to the log of this life, with whatever else waits by then.

        Raises:
            Fenced: nothing was appended. ResourceExhausted.
            Unavailable: the outcome is unknown.
        """
        with self._guard:
            self._queue.append(waiting)
        self._came.ring()
        while not waiting.is_done:
            with self._turn:
                if not waiting.is_done:
                    self._pause()
                    self._store(self._taken_from_queue())
        if waiting.error is not None:
            raise waiting.error

    def _pause(self) -> None:
        """Wait until the next container may go."""
        if self._between_us:
            self._clock.wait_until(self._next_us, self._closing)
            self._wait_for_following()
            self._next_us = self._clock.now_us() + self._between_us

    def _wait_for_following(self) -> None:
        """Wait until all who were answered last have appended again, a moment at most."""
        until_us = self._stored_us + FOLLOWING_US
        while self._clock.now_us() < until_us and not self._closing.rung:
            self._came.clear()
            with self._guard:
                if self._answered <= {one.ownership.id for one in self._queue}:
                    return
            self._clock.wait_until(until_us, self._came)

    def _taken_from_queue(self) -> list[Waiting]:
        with self._guard:
            byte_count = count = 0
            for one in self._queue:
                if count and byte_count + one.byte_count > CONTAINER_BYTES_MAX:
                    break
                byte_count += one.byte_count
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
        return group

    def _store(self, group: list[Waiting]) -> None:
        while group:
            # Before what goes on is looked for: what comes in between is in this place, then.
            number = self.own.next
            group = self._going_on(group)
            if not group:
                return
            parts = [(one.ownership.id, one.after + 1, one.contents) for one in group]
            content = encode_records(parts)
            try:
                is_stored = self.own.put(number, content)
                if is_stored:
                    self.own.apply(number, decode_head(content, self.own.name(number)))
                else:
                    # Somebody takes ownerships; or it is one of ours, whose answer was lost.
                    self.own.refresh()
                    if self.own.is_sealed:
                        self._begin()
            except DejaQError as failure:
                self._is_unclear |= isinstance(failure, Unavailable)
                for one in group:
                    one.end(type(failure)(str(failure)))
                return
            if is_stored:
                self._is_unclear = False
                self.containers += 1
                self._stored_us = self._clock.now_us()
                self._answered = {one.ownership.id for one in group}
                for one in group:
                    one.end()
                self._index_if_due()
                return

    def _going_on(self, group: list[Waiting]) -> list[Waiting]:
        """Those that are behind the last record of their ownership; the others are Fenced."""
        found = []
        lasts: dict[str, int] = {}
        for one in group:
            owned = one.ownership
            last = lasts.get(owned.id)
            if last is None:
                last = self.own.last_of(owned.id, owned.first)
            if owned.life != self.life or self.own.is_taken(owned.id):
                one.end(Fenced(f"{one.name}: another owner has taken it over"))
            elif last != one.after:
                one.end(Fenced(f"{one.name}: the last record is {last}, not {one.after}"))
            else:
                lasts[owned.id] = last + len(one.contents)
                found.append(one)
        return found

    # --- room -----------------------------------------------------------------------------------

    def _index_if_due(self) -> None:
        if self.own.next - self.own.indexed > INDEX_CONTAINERS and not self._is_indexing:
            self._is_indexing = True
            self._run(self._index)

    def _index(self) -> None:
        """Store the index, and delete what nobody needs. A failure leaves it for the next time."""
        try:
            self.store_index()
            if not self._has_buried:  # once: those that end while this one lives are for the next
                bury(self._bucket, self.life, self._log_of)
                self._has_buried = True
        except DejaQError as failure:
            log.warning("containers that nobody needs stay for now: %s", failure)
        finally:
            self._is_indexing = False

    def store_index(self) -> None:
        """Store the index of this life's log, and delete containers that nobody needs. One at a
        time. Raises Unavailable."""
        for ownership in [one for one in list(self.own.taken) if one in self._links]:
            if not self._links[ownership]():
                self.own.forget(ownership)
                del self._links[ownership]
        self.own.store_index()

    def close(self) -> None:
        """Nothing waits any more."""
        self._closing.ring()
        self._came.ring()
