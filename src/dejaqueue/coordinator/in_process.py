"""Facts in memory: what several brokers of one process agree on, on a clock that a test may own.

    facts = ProcessFacts(clock)             # the "server"
    first, second = facts.open(), facts.open()

Room: coordinator.
Holds: duties 1 to 6; a ttl runs on the clock that was given, and not otherwise. What is planned
(bells, vanishing) goes through one function `at(instant_us, call)`: a thread of its own, or the
simulator's list of things to come.
See: interface.py; registry.py for `memory:` and `memory:NAME`.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from dejaqueue.clock import Clock, SystemClock, Wake
from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import Unavailable

Adopted = TypeVar("Adopted", bound="ProcessCoordinator")
At = Callable[[int, Callable[[], None]], None]
"""Plans a call at an instant (microseconds of the clock), or soon if that is past."""


class _Alarm:
    """A thread that makes calls when their instants come; it runs from the first plan to `stop`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = Wake()
        self._lock = threading.Lock()
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._thread: threading.Thread | None = None
        self._stopped = False

    def at(self, instant_us: int, call: Callable[[], None]) -> None:
        """Plan a call; those of one instant are made in the order of planning."""
        with self._lock:
            if self._stopped:
                return
            self._count += 1
            heapq.heappush(self._planned, (instant_us, self._count, call))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="dejaq-process-facts", daemon=True
                )
                self._thread.start()
        self._wake.ring()

    def stop(self) -> None:
        """Make no more calls."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._wake.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            self._wake.clear()
            call: Callable[[], None] | None = None
            next_us = None
            with self._lock:
                if self._stopped:
                    return
                if self._planned:
                    next_us = self._planned[0][0]
                    if next_us <= self._clock.now_us():
                        call = heapq.heappop(self._planned)[2]
            if call is not None:
                call()
            else:
                self._clock.wait_until(next_us, self._wake)


@dataclass(frozen=True, slots=True)
class Kept:
    """A fact as it is kept; `until_us` None = it stays."""

    fact: Fact
    ttl_us: int = 0
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class FactsCopy:
    """What was kept at an instant."""

    revision: int
    kept: dict[str, Kept]


class ProcessFacts:
    """The facts that the coordinators of one process share.

    Args:
        clock: runs the ttl.
        at: plans calls; None = on a thread of its own. The simulator brings its own.
    """

    def __init__(self, clock: Clock | None = None, at: At | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._alarm = _Alarm(self.clock)  # no thread before something is planned
        self._at: At = at or self._alarm.at
        self._lock = threading.RLock()
        self._kept: dict[str, Kept] = {}
        self._ends_us: dict[str, int] = {}
        """When facts vanish that do: a few of many, so that no call looks at all of them."""
        self._revision = 0
        self._planned_us: int | None = None
        self._open: list[ProcessCoordinator] = []

    def open(self) -> ProcessCoordinator:
        """A coordinator upon these facts, for one broker."""
        return self.adopt(ProcessCoordinator(self))

    def adopt(self, coordinator: Adopted) -> Adopted:
        """Let a coordinator upon these facts hear of changes; a test brings one of its own kind."""
        with self._lock:
            self._open.append(coordinator)
        return coordinator

    def leave(self, coordinator: ProcessCoordinator) -> bool:
        """A coordinator is closed; True if it was the last one."""
        with self._lock:
            if coordinator in self._open:
                self._open.remove(coordinator)
            return not self._open

    def is_unused(self) -> bool:
        """True if no coordinator is open."""
        with self._lock:
            return not self._open

    def close(self) -> None:
        """End the thread. The facts stay readable."""
        self._alarm.stop()

    def find(self, prefix: str, *, whole: bool = False) -> list[Fact]:
        """The facts below a prefix, or the one of this key, by key."""
        with self._lock:
            self._drop_vanished()
            if whole:
                kept = self._kept.get(prefix)
                return [] if kept is None else [kept.fact]
            return [self._kept[key].fact for key in sorted(self._kept) if key.startswith(prefix)]

    def put(self, key: str, value: bytes, revision: int | None, ttl_ms: int | None) -> int:
        """Store a fact. Raises Conflict."""
        with self._lock:
            self._drop_vanished()
            self._compare(key, revision)
            self._revision += 1
            kept = Kept(Fact(key, bytes(value), self._revision))
            if ttl_ms is not None:
                ttl_us = ttl_ms * 1_000
                kept = replace(kept, ttl_us=ttl_us, until_us=self.clock.now_us() + ttl_us)
            self._store(key, kept)
            self._changed(key)
            self._plan_vanishing()
            return kept.fact.revision

    def renew(self, key: str, revision: int) -> bool:
        """Keep this revision of a fact for another ttl; False if it is not there any more."""
        with self._lock:
            self._drop_vanished()
            kept = self._kept.get(key)
            if kept is None or kept.fact.revision != revision:
                return False
            if kept.until_us is not None:
                self._store(key, replace(kept, until_us=self.clock.now_us() + kept.ttl_us))
            return True

    def delete(self, key: str, revision: int | None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict."""
        with self._lock:
            self._drop_vanished()
            self._compare(key, revision)
            if self._kept.pop(key, None) is None:
                return False
            self._ends_us.pop(key, None)
            self._changed(key)
            return True

    def copy(self) -> FactsCopy:
        """All that is kept now, for `restore`."""
        with self._lock:
            return FactsCopy(self._revision, dict(self._kept))

    def restore(self, copy: FactsCopy) -> None:
        """Go back to what was kept then, revisions too, as a server restored from a backup does."""
        with self._lock:
            changed = self._kept.keys() | copy.kept.keys()
            self._revision, self._kept = copy.revision, dict(copy.kept)
            ends_us = {key: kept.until_us for key, kept in self._kept.items()}
            self._ends_us = {key: until for key, until in ends_us.items() if until is not None}
            for key in sorted(changed):
                self._changed(key)
            self._plan_vanishing()

    def soon(self, call: Callable[[], None]) -> None:
        """Make a call on the thread of the facts."""
        self._at(self.clock.now_us(), call)

    def _store(self, key: str, kept: Kept) -> None:
        self._kept[key] = kept
        if kept.until_us is None:
            self._ends_us.pop(key, None)
        else:
            self._ends_us[key] = kept.until_us

    def _compare(self, key: str, revision: int | None) -> None:
        kept = self._kept.get(key)
        revision_now = kept.fact.revision if kept is not None else 0
        if revision is not None and revision != revision_now:
            raise Conflict(f"{key} has revision {revision_now}, expected {revision}")

    def _changed(self, key: str) -> None:
        for coordinator in self._open:
            self.soon(lambda bells=coordinator.bells: bells.ring(key))  # type: ignore[misc]

    def _drop_vanished(self) -> None:
        now_us = self.clock.now_us()
        for key in [key for key, until_us in self._ends_us.items() if until_us <= now_us]:
            del self._kept[key], self._ends_us[key]
            self._changed(key)

    def _plan_vanishing(self) -> None:
        next_us = min(self._ends_us.values(), default=0)
        # One plan at a time: after a renewal it comes too early, and then plans the next one.
        if next_us and (self._planned_us is None or next_us < self._planned_us):
            self._planned_us = next_us
            self._at(next_us, self._vanish)

    def _vanish(self) -> None:
        with self._lock:
            self._planned_us = None
            self._drop_vanished()
            self._plan_vanishing()


class ProcessCoordinator(Coordinator):
    """The facts of a process as one broker sees them. Made by `ProcessFacts.open`.

    Attributes:
        is_cut: True while `cut` holds: every call raises Unavailable and changes nothing.
        answers_lost: that many of the next calls are carried out, but raise Unavailable.
    """

    summary = "this process"

    def __init__(self, facts: ProcessFacts) -> None:
        self._facts = facts
        self.bells = Bells()
        self.is_cut = False
        self.answers_lost = 0
        self._own: dict[str, int] = {}
        self._on_last_close: Callable[[], None] | None = None

    def cut(self) -> None:
        """Play a network that is gone, until `mend`."""
        self.is_cut = True

    def mend(self) -> None:
        """The network is back; every bell rings."""
        self.is_cut = False
        self._facts.soon(self.bells.ring)

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""
        self._reach()
        facts = self._facts.find(check_key(key), whole=True)
        self._answer()
        return facts[0] if facts else None

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""
        self._reach()
        facts = self._facts.find(check_prefix(prefix))
        self._answer()
        return facts

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)
        self._reach()
        stored = self._facts.put(key, value, revision, ttl_ms)
        self._answer()
        self._own[key] = stored
        return stored

    def renew(self, key: str) -> bool:
        """Keep a fact that this coordinator put with a ttl; False if it is there no more."""
        self._reach()
        kept = self._facts.renew(check_key(key), self._own.get(key, 0))
        self._answer()
        return kept

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        self._reach()
        deleted = self._facts.delete(check_key(key), revision)
        self._answer()
        return deleted

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on the thread of the facts, after changes below the prefix."""
        return self.watch_keys(prefix, lambda _: bell())

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `watch`, and the bell is given the key of the fact that changed; None = any."""
        return self.bells.add_keyed(prefix, self._heard(bell))

    def on_last_close(self, call: Callable[[], None]) -> None:
        """What to do when the last coordinator of these facts was closed."""
        self._on_last_close = call

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish."""
        self.bells.close()
        if self._facts.leave(self) and self._on_last_close is not None:
            self._on_last_close()

    def _heard(self, bell: Callable[[str | None], None]) -> Callable[[str | None], None]:
        def ring(key: str | None) -> None:
            if not self.is_cut:
                bell(key)

        return ring

    def _reach(self) -> None:
        if self.is_cut:
            raise Unavailable("the coordinator is out of reach")

    def _answer(self) -> None:
        if self.answers_lost:
            self.answers_lost -= 1
            raise Unavailable("the coordinator's answer was lost")
