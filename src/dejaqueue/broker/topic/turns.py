"""Whose turn it is: sendings of one batch of a producer, one at a time.

Room: broker. Any thread.
Holds: what a sending finds stored of its batch is all there is, as no other one is under way.
See: routing.py, which takes turns in topics that grew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from dejaqueue import limits
from dejaqueue.errors import DejaQError, Unavailable


class Sending(NamedTuple):
    """A sending that waits for its turn: it begins, or is refused, and calls `end` then."""

    begin: Callable[[], None]
    refuse: Callable[[DejaQError], None]


class Turns:
    """Sendings of a producer's batch in a topic that grew: one at a time, so that what one finds
    stored is all there is. Any thread.

    Args:
        again: runs a call on a thread that may wait.
    """

    def __init__(self, again: Callable[[Callable[[], None]], None]) -> None:
        self._again = again
        self._lock = Lock()
        self._waiting: dict[tuple[str, int], deque[Sending]] = {}
        self._last: dict[str, object] = {}

    def begin(self, producer: str, number: int, sending: Sending) -> bool:
        """True: the caller may send now, and calls `end`. False: `sending` begins in its turn, or
        is refused."""
        with self._lock:
            waiting = self._waiting.get((producer, number))
            if waiting is None:
                self._waiting[producer, number] = deque()
                return True
            waiting.append(sending)
            return False

    def end(self, producer: str, number: int, sender: object) -> None:
        """All of the batch is answered: the next sending of it begins."""
        with self._lock:
            self._note(producer, sender)
            waiting = self._waiting[producer, number]
            following = waiting.popleft() if waiting else None
            if following is None:
                del self._waiting[producer, number]
        if following is None:
            return
        try:
            self._again(following.begin)
        except Unavailable as closed:
            following.refuse(closed)

    def is_of(self, producer: str, sender: object) -> bool:
        """True if nobody else sent in the producer's name since this sender asked last."""
        with self._lock:
            same = self._last.get(producer) is sender
            self._note(producer, sender)
            return same

    def _note(self, producer: str, sender: object) -> None:
        self._last.pop(producer, None)
        self._last[producer] = sender
        if len(self._last) > limits.PRODUCERS_MAX:
            del self._last[next(iter(self._last))]
