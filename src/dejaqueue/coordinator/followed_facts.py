"""Facts below a prefix as somebody knows them, who reads again what has changed and no more.

    owners = FollowedFacts(coordinator, "owners/", parse, clock)
    owners.open(on_change)
    owners.read()                       by key, once a round: what the facts say

Where there are few facts all are listed at each read. In a cluster of a hundred brokers and 4,096
slots that is half a million facts a second, and a thousand times as many while slots change hands:
there a bell says which fact has changed, and that one is read.

Room: coordinator.
Holds: a fact that changed is read after its bell, or all are; what this process has changed itself
is known without a bell; what is doubted is read. All are listed now and then, bells or not.
See: interface.py, duty 5; docs/adr/0082.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dejaqueue.clock import Clock
from dejaqueue.coordinator.interface import Coordinator, Fact, Watch

Known = TypeVar("Known")

CHANGED_SHARE = 64
"""If more than this part of the facts has changed they are listed: a call for each of them would
take longer. A list of so many is one page of most servers."""


class FollowedFacts(Generic[Known]):
    """What the facts below one prefix say. One thread reads; any may say what it knows.

    Args:
        parse: of a fact; its result is kept while the fact is the same.
        clock: elapsed time.
        listed_below: while there are fewer facts than this they are listed at each read.

    Attributes:
        list_ms: they are listed after so long, bells or not; 0 = at each read.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        prefix: str,
        parse: Callable[[Fact], Known],
        clock: Clock,
        listed_below: int,
    ) -> None:
        self.list_ms = 0
        self._coordinator, self._prefix, self._parse = coordinator, prefix, parse
        self._clock, self._listed_below = clock, listed_below
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._is_doubted = True
        self._listed_us = 0
        self._facts: dict[str, Fact] = {}
        """Whole: a server that was restored from an older copy gives a revision twice."""
        self._known: dict[str, Known] = {}
        self._noted: set[str] = set()
        """What was put here since the last read began: it may have read what was before."""

    @property
    def count(self) -> int:
        """How many facts are known."""
        return len(self._known)

    def open(self, on_change: Callable[[], None]) -> Watch:
        """Hear of changes; each is told on, after it was noted. Raises Unavailable."""

        def hear(key: str | None) -> None:
            with self._lock:
                if key is None:
                    self._is_doubted = True
                else:
                    self._changed.add(key)
            on_change()

        return self._coordinator.watch_keys(self._prefix, hear)

    def doubt(self) -> None:
        """What is known may be wrong: list at the next read."""
        with self._lock:
            self._is_doubted = True

    def look_again(self, key: str) -> None:
        """What is known of a fact is wrong, or may be: it is read again."""
        with self._lock:
            self._changed.add(key)

    def note(self, fact: Fact) -> None:
        """This process has just put this fact. Somebody may have changed it again since."""
        with self._lock:
            known = self._facts.get(fact.key)
            if known is None or fact.revision > known.revision:
                self._learn(fact)
                self._noted.add(fact.key)

    def read(self) -> dict[str, Known]:
        """What the facts say, by key; of one thread. Raises Unavailable.

        Cost: a list, or a call for each fact that changed, 1/64 of them at most.
        """
        now_us = self._clock.now_us()
        with self._lock:
            changed, self._changed = self._changed, set()
            self._noted.clear()
            count = len(self._known)
            lists = (
                self._is_doubted
                or count < self._listed_below
                or len(changed) > count // CHANGED_SHARE
                or now_us >= self._listed_us + self.list_ms * 1_000
            )
            self._is_doubted = False
        try:
            if lists:
                self._list(now_us)
            else:
                self._read(changed)
        except BaseException:
            self.doubt()
            raise
        with self._lock:
            return dict(self._known)

    def _list(self, now_us: int) -> None:
        facts = self._coordinator.list(self._prefix)
        with self._lock:
            for key in self._known.keys() - {fact.key for fact in facts}:
                self._take(key, None)
            for fact in facts:
                self._take(fact.key, fact)
        self._listed_us = now_us

    def _read(self, keys: set[str]) -> None:
        for key in sorted(keys):
            fact = self._coordinator.get(key)
            with self._lock:
                self._take(key, fact)

    def _take(self, key: str, fact: Fact | None) -> None:
        """The server said this; None = there is no such fact."""
        if key in self._noted and (fact is None or fact.revision < self._facts[key].revision):
            return
        if fact is not None:
            self._learn(fact)
        else:
            self._known.pop(key, None)
            self._facts.pop(key, None)

    def _learn(self, fact: Fact) -> None:
        if self._facts.get(fact.key) != fact:
            self._known[fact.key] = self._parse(fact)
            self._facts[fact.key] = fact
