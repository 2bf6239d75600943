"""Slots on their way to other brokers: their topics are finished, then the slot is nobody's.

    snapshots are taken, and the next owner reads them    while all of it is served here
    topics are closed, the slot is released               nobody serves it, until it is claimed

Room: cluster. Runs beside the rounds of a node, a few slots at a time.
Holds: a slot is served until its next owner has read it; from then on nothing of it begins to be
served here; it is released when its topics are closed, or when that took CLOSE_SECONDS_MAX: a
journal that hangs holds up neither its neighbours nor other slots.
See: node.py; next_owners.py; broker/topic/handing_over.py, for what becomes of a topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.clock import Clock
from dejaqueue.cluster.next_owners import NextOwners
from dejaqueue.errors import DejaQError

SLOTS_AT_ONCE = 4
"""Few, so that each is away for a short time; more than one, since a journal may hang."""
TOPICS_AT_ONCE = 8
CLOSE_SECONDS_MAX = 2.0
"""Then the next owner fences what still hangs."""

NOBODY: Mapping[int, str] = {}

log = logging.getLogger("dejaqueue.cluster")


class HandOvers:
    """What one broker hands over.

    Args:
        topics_of: what it serves of a slot.
        release: says that a slot is nobody's, if its fact still has this revision. Raises
            Unavailable.
        ring: called when a hand-over has ended.
        clock: elapsed time.
    """

    def __init__(
        self,
        threads: Threads,
        topics_of: Callable[[int], Collection[str]],
        release: Callable[[int, int], None],
        ring: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._threads, self._topics_of, self._clock = threads, topics_of, clock
        self._release, self._ring = release, ring
        self._next_owners = NextOwners(threads, clock)
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._given: dict[int, int] = {}
        """Slots that are handed over, or were since the facts were last read, by the revision of
        the fact that names this broker: what was read before that says nothing about them."""
        self._closing: set[int] = set()
        self._under_way: set[int] = set()
        self._begun: list[Future[None]] = []

    def begin(
        self, broker: Broker, slots: Mapping[int, int], next_owners: Mapping[int, str] = NOBODY
    ) -> None:
        """Hand slots over that are not on their way yet. Returns at once.

        Args:
            slots: with the revisions of the facts that name this broker.
            next_owners: where their next owners are, as far as that is known.
        """
        for slot, revision in slots.items():
            with self._lock:
                if self._given.get(slot) == revision or slot in self._under_way:
                    continue
                self._given[slot] = revision
                self._under_way.add(slot)
                if self._executor is None:
                    self._executor = self._threads.executor("dejaq-give", SLOTS_AT_ONCE)
            hand_over = partial(self._hand_over, broker, slot, revision, next_owners.get(slot, ""))
            begun = self._executor.submit(hand_over)
            self._begun = [one for one in (*self._begun, begun) if not one.done()]

    def drop(self, broker: Broker, names: Iterable[str]) -> None:
        """Serve topics no more that are another's."""
        give = partial(broker.give, drain=False, seconds_max=CLOSE_SECONDS_MAX)
        self._side_by_side(give, names)

    def look_again(self) -> None:
        """The facts are read from now on: what they say of slots that are handed over holds.

        A coordinator that was restored from an older copy may say again that one is ours.
        """
        with self._lock:
            self._given = {s: at for s, at in self._given.items() if s in self._under_way}

    def has(self, slot: int, revision: int) -> bool:
        """True if a slot is not to be served any more by the fact of this revision."""
        return self._given.get(slot) == revision

    def is_closing(self, slot: int) -> bool:
        """True if nothing of a slot may begin to be served: its topics are being closed."""
        return slot in self._closing

    def wait(self, until_us: int) -> None:
        """Return when nothing is under way, or at this time: several that hang have it together."""
        for one in self._begun:
            with suppress(TimeoutError):
                one.result(max(0, until_us - self._clock.now_us()) / 1e6)

    def close(self) -> None:
        """Return when nothing is under way; nothing is begun after that."""
        if self._executor is not None:
            self._executor.shutdown()

    def _hand_over(self, broker: Broker, slot: int, revision: int, url: str) -> None:
        try:
            self._side_by_side(broker.prepare_to_give, self._topics_of(slot))
            if url:
                self._next_owners.have_read(broker, url, self._topics_of(slot))
            self._closing.add(slot)
            give = partial(broker.give, drain=True, seconds_max=CLOSE_SECONDS_MAX)
            self._side_by_side(give, self._topics_of(slot))
            self._release(slot, revision)
        except DejaQError as error:
            log.warning("slot %d could not be handed over: %s", slot, error)
        finally:
            self._closing.discard(slot)
            with self._lock:
                self._under_way.discard(slot)
            self._ring()

    def _side_by_side(self, call: Callable[[str], None], names: Iterable[str]) -> None:
        found = list(names)
        if len(found) > 1:  # each waits for its journals
            with self._threads.executor("dejaq-give", min(TOPICS_AT_ONCE, len(found))) as threads:
                list(threads.map(call, found))
        else:
            for name in found:
                call(name)
