"""Facts in a bucket of S3, Google or Azure, or in a directory that is used like one.

    s3://bucket/prefix   gs://bucket/prefix   az://…   bucket:///path

All that several threads ask for at once goes together: one reads the log on, or stores one entry
with all changes. A thread hears of what others have stored by asking for the next number, and
nothing else, every `poll_ms` in which nothing else asked.

A bucket has no clock that could be trusted. A fact with a ttl vanishes when one that follows has
seen no renewal for so long, by its own elapsed time since it read the last one: it stores, in the
place behind all that it has read, that the fact is gone. Renewals must not wait for each other in
the log: each fact has an object for them, which is overwritten. Who was late with that renews in
the log: there either the renewal has the place, or the end.

Room: coordinator, one backend.
Holds: duties 1 to 6. Nothing compares clocks of two machines.
See: fact_log.py; docs/adr/0086-a-coordinator-in-the-bucket.md; docs/guides/coordinators.md.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import xxhash

from dejaqueue.clock import Clock, SteadyClock, Wake
from dejaqueue.connections.bucket import Bucket, DirectoryBucket
from dejaqueue.connections.object_bucket import ObjectBucket
from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.fact_log import Entry, FactLog
from dejaqueue.coordinator.fact_table import (
    CHANGES_MAX,
    DELETE,
    PUT,
    RENEW,
    Change,
    FactTable,
    revision_of,
)
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import BadRequest, DejaQError, Unavailable

ANSWER_S: Final = 3
"""How long the store may be silent before it counts as gone."""
TRIES_S: Final = 10
"""How long a change is tried again while others are quicker."""
AGAIN_S: Final = 0.25
ENTRY_BYTES_MAX: Final = 4 << 20
"""Bytes of the values of an entry, about: what else waits goes with the next one."""
BEATS: Final = "beats/"
"""Objects with the renewals of facts, by a hash of the key."""
VANISHED_MAX: Final = 10
SCHEME: Final = "bucket"

log = logging.getLogger(__name__)


def open_url(url: str) -> BucketCoordinator:
    """The coordinator of a bucket's URL. Raises BadRequest, Refused, Unavailable."""
    place = url.partition("?")[0]  # what a journal's URL says of its requests is not about this
    scheme, _, path = place.partition("://")
    if scheme != SCHEME:
        return BucketCoordinator(ObjectBucket(place, "coordinator", answer_seconds=ANSWER_S))
    if not path.startswith("/"):
        raise BadRequest("coordinator", f"{SCHEME}:///path", place)
    return BucketCoordinator(DirectoryBucket(Path(path), "coordinator"))


class _OwnFact(NamedTuple):
    """A fact that was put here.

    Attributes:
        renewed_us: when the last renewal that succeeded began, or the put.
    """

    revision: int
    ttl_ms: int | None
    renewed_us: int


def _beat_name(key: str) -> str:
    return BEATS + xxhash.xxh3_128_hexdigest(key.encode())


class _Call(ABC):
    """Something that is asked for."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.byte_count = 0
        self.is_done = False
        self.error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        """It is done, or has failed."""
        self.error, self.is_done = error, True

    @abstractmethod
    def decide(self, table: FactTable, revision: int) -> Change | None:
        """What is to become of the facts as they are, and with it the answer; None = nothing.

        Args:
            revision: what the change would have.
        """


class _Look(_Call):
    """Reads facts."""

    def __init__(self, key: str, read: Callable[[FactTable], list[Fact]]) -> None:
        super().__init__(key)
        self._read = read
        self.answer: list[Fact] = []

    def decide(self, table: FactTable, revision: int) -> Change | None:
        self.answer = self._read(table)
        return None


class _ComparedChange(_Call):
    """Changes a fact that must have a revision."""

    def __init__(self, change: Change, revision: int | None) -> None:
        super().__init__(change.key)
        self._change, self._revision = change, revision
        self.byte_count = len(change.value)
        self.answer = 0
        self.conflict: Conflict | None = None

    def decide(self, table: FactTable, revision: int) -> Change | None:
        kept = table.get(self.key)
        has = 0 if kept is None else kept.fact.revision
        self.answer, self.conflict = revision, None
        if self._revision is not None and self._revision != has:
            text = f"{self.key} has revision {has}, expected {self._revision}"
            self.conflict = Conflict(text)
            return None
        if self._change.kind == DELETE and kept is None:
            self.answer = 0
            return None
        return self._change


class _Renewal(_Call):
    """Renews a fact that has this revision still."""

    def __init__(self, key: str, revision: int) -> None:
        super().__init__(key)
        self._revision = revision
        self.answer = False

    def decide(self, table: FactTable, revision: int) -> Change | None:
        kept = table.get(self.key)
        self.answer = kept is not None and kept.fact.revision == self._revision
        if kept is None or not self.answer or kept.ttl_ms is None:
            return None
        return Change(RENEW, self.key)


_Calls: TypeAlias = list[_Call]


class BucketCoordinator(Coordinator):
    """Facts in one bucket.

    Args:
        bucket: which does not store a new object twice by itself.
        clock: elapsed time; None = that of this process.

    Raises:
        Refused: the store stores where there is an object already. Unavailable.
    """

    request_weight = 10

    def __init__(self, bucket: Bucket, clock: Clock | None = None) -> None:
        self._clock = clock or SteadyClock()
        self.log = FactLog(bucket, self._clock)
        self.summary = f"bucket {bucket.url}"
        self._turn = threading.Lock()
        """Of who reads the log on or stores an entry, for all that waits."""
        self._guard = threading.Lock()
        self._queue: list[_Call] = []
        self._bucket = bucket
        self._own: dict[str, _OwnFact] = {}
        self._beats: dict[str, tuple[bytes | None, int]] = {}
        """Renewals beside the log that were read last, and when they were asked for."""
        self._heard_us: dict[str, int] = {}
        """Of facts with a ttl: when the last renewal was read here, in elapsed time."""
        self._current_us = 0
        """When all was known that had been stored."""
        self._is_away = False
        self._bells = Bells()
        self._to_ring: set[str] = set()
        self._rings_all = False
        self._wake = Wake()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    # --- the contract ---------------------------------------------------------------------------

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""

        def read(table: FactTable) -> list[Fact]:
            kept = table.get(key)
            return [] if kept is None else [kept.fact]

        look = _Look(check_key(key), read)
        self._ask(look)
        return look.answer[0] if look.answer else None

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""
        look = _Look(check_prefix(prefix), lambda table: table.below(prefix))
        self._ask(look)
        return look.answer

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)
        began_us = self._clock.now_us()
        stored = self._change(Change(PUT, key, bytes(value), ttl_ms), revision)
        self._own[key] = _OwnFact(stored, ttl_ms, began_us)
        return stored

    def renew(self, key: str) -> bool:
        """Keep a fact that this coordinator put with a ttl; False if it is there no more."""
        own = self._own.get(check_key(key))
        if own is None:
            return False
        began_us = self._clock.now_us()
        half_us = (own.ttl_ms or 0) * 500
        # Whoever ends it has heard nothing for a ttl. If the one before came there less than half
        # of that ago, nobody can before the other half is over.
        if own.ttl_ms is not None and began_us <= own.renewed_us + half_us:
            content = b"%d %d" % (own.revision, began_us)
            with self._guard:
                if self._is_closed:
                    raise Unavailable(f"{self.summary} is closed")
                renewing = self.log.pool.submit(self._bucket.put, _beat_name(key), content)
            fact = self.get(key)
            renewing.result()
            if fact is None or fact.revision != own.revision:
                return False
            if self._clock.now_us() <= began_us + half_us:
                self._own[key] = own._replace(renewed_us=began_us)
                return True
        renewal = _Renewal(key, own.revision)
        self._ask(renewal)
        if renewal.answer:
            self._own[key] = own._replace(renewed_us=began_us)
        return renewal.answer

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        return self._change(Change(DELETE, check_key(key)), revision) > 0

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on the thread that follows the log, after changes below the prefix."""
        return self.watch_keys(prefix, lambda _: bell())

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `watch`, and the bell is given the key of the fact that changed; None = any."""
        watch = self._bells.add_keyed(prefix, bell)
        with self._guard:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="dejaq-facts", daemon=True)
                self._thread.start()
        return watch

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish."""
        self._bells.close()
        with self._guard:
            self._is_closed = True
            thread = self._thread
        self._wake.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._turn:
            self.log.close()

    # --- all that waits, at once ----------------------------------------------------------------

    def _change(self, change: Change, revision: int | None) -> int:
        call = _ComparedChange(change, revision)
        self._ask(call)
        if call.conflict is not None:
            raise call.conflict
        return call.answer

    def _ask(self, call: _Call) -> None:
        """Have something done, with whatever else waits by then. Raises Unavailable."""
        with self._guard:
            if self._is_closed:
                raise Unavailable(f"{self.summary} is closed")
            self._queue.append(call)
        while not call.is_done:
            with self._turn:
                if not call.is_done:
                    self._serve(self._taken_from_queue())
        if call.error is not None:
            raise call.error

    def _taken_from_queue(self) -> _Calls:
        with self._guard:
            byte_count = count = 0
            for call in self._queue[:CHANGES_MAX]:
                if count and byte_count + call.byte_count > ENTRY_BYTES_MAX:
                    break
                byte_count += call.byte_count
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
        return group

    def _serve(self, group: _Calls) -> None:
        try:
            self._serve_all(group)
        except DejaQError as failure:
            self._is_away |= isinstance(failure, Unavailable)
            for call in group:
                # Each caller raises its own: a traceback would grow with each of them.
                call.end(type(failure)(str(failure)))
        except BaseException as failure:
            for call in group:
                call.end(failure if isinstance(failure, Exception) else Unavailable("it is ending"))
            raise

    def _serve_all(self, group: _Calls) -> None:
        until_us = self._clock.now_us() + TRIES_S * 1_000_000
        is_current = not self.log.next_number
        if is_current:
            self._read_on()
        while True:
            changes, changing = self._decided(group, is_current=is_current)
            if is_current:
                for call in set(group).difference(changing):
                    call.end()
                # While others are quicker, who only reads need not wait.
                group[:] = [*changing, *self._taken_from_queue()]
                changes, _ = self._decided(group, is_current=True)
            if changes:
                is_stored, came = self.log.append(changes)
                self._take(came)
                self._is_current()
                if is_stored:
                    break
            elif is_current and not group:
                return
            else:
                self._read_on()
            is_current = True
            if self._clock.now_us() > until_us:
                raise Unavailable(f"{self.summary}: others change facts all the time", 100)
        for call in group:
            call.end()

    def _decided(
        self, group: Iterable[_Call], *, is_current: bool
    ) -> tuple[Sequence[Change], Sequence[_Call]]:
        """What becomes of the facts, if all that is known here is all that there is; and who asked
        for it."""
        number, table = self.log.next_number, self.log.table.copy()
        changes: list[Change] = []
        changing: list[_Call] = []

        def make(change: Change) -> None:
            table.apply(change, revision_of(number, len(changes)))
            changes.append(change)

        # Where something came in between, it may be a renewal: so only after a look.
        for key in self._vanished() if is_current else ():
            make(Change(DELETE, key))
        for call in group:
            change = call.decide(table, revision_of(number, len(changes)))
            if change is not None:
                make(change)
                changing.append(call)
        return changes, changing

    def _vanished(self) -> Sequence[str]:
        """Facts whose ttl is over, as seen from here; a few, so that all find room."""
        now_us = self._clock.now_us()
        over = [
            key
            for key, ttl_us in self._ttls_us().items()
            if now_us >= self._heard_us.get(key, now_us) + ttl_us
        ]
        return [key for key in sorted(over)[:VANISHED_MAX] if not self._hears(key)]

    def _ttls_us(self) -> dict[str, int]:
        """Of the facts that have one."""
        kept = {key: self.log.table.get(key) for key in list(self._heard_us)}
        return {key: one.ttl_ms * 1_000 for key, one in kept.items() if one and one.ttl_ms}

    def _hears(self, key: str) -> bool:
        """Whether a fact was renewed beside the log since that was asked last."""
        began_us = self._clock.now_us()
        content = self._bucket.get(_beat_name(key))
        before = self._beats.get(key, (None, 0))[0]
        self._beats[key] = content, began_us
        if content == before:
            return False
        self._heard_us[key] = self._clock.now_us()
        return True

    def _listen(self) -> None:
        """Look for renewals of others, of each fact four times in its ttl."""
        for key, ttl_us in self._ttls_us().items():
            if key in self._own:
                continue
            if self._clock.now_us() >= self._beats.get(key, (None, 0))[1] + ttl_us // 4:
                with self._turn:
                    self._hears(key)

    def _read_on(self) -> None:
        self._take(self.log.read_on())
        self._is_current()

    def _is_current(self) -> None:
        """All that was stored is known: the store is there."""
        self._current_us = self._clock.now_us()
        if self._is_away or self.log.has_failed:
            self.log.has_failed = False
            self._is_away = False
            self._ring(None)

    def _take(self, came: Iterable[Entry]) -> None:
        """Note what came, for bells and for what vanishes."""
        now_us = self._clock.now_us()
        for entry in came:
            if entry.changed is None:
                self._heard_us = dict.fromkeys(entry.renewed, now_us)
            for key in entry.renewed | (entry.changed or set()):
                kept = self.log.table.get(key)
                if kept is None or kept.ttl_ms is None:
                    self._heard_us.pop(key, None)
                elif key in entry.renewed:
                    self._heard_us[key] = now_us
            if entry.changed or entry.changed is None:
                self._ring(entry.changed)

    # --- following ------------------------------------------------------------------------------

    def _ring(self, keys: set[str] | None) -> None:
        with self._guard:
            if keys is None:
                self._rings_all = True
            else:
                self._to_ring |= keys
        self._wake.ring()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.clear()
            with self._guard:
                keys: Iterable[str | None] = [None] if self._rings_all else sorted(self._to_ring)
                self._to_ring, self._rings_all = set(), False
            for key in keys:
                self._bells.ring(key)
            next_us = self._current_us + self.poll_ms * 1_000
            if self._clock.now_us() < next_us:
                self._clock.wait_until(next_us, self._wake)
                continue
            try:
                self._listen()
                self._ask(_Look("", lambda _: []))
                self._clean()
            except Exception as error:  # noqa: BLE001 - a thread that ends would miss every change
                level = logging.DEBUG if isinstance(error, DejaQError) else logging.ERROR
                log.log(level, "following the facts in the bucket failed: %r", error)
                again_us = self._clock.now_us() + round(AGAIN_S * 1e6)
                while not self._is_closed and self._clock.now_us() < again_us:
                    self._wake.clear()
                    self._clock.wait_until(again_us, self._wake)

    def _clean(self) -> None:
        with self._turn:
            self.log.clean()
