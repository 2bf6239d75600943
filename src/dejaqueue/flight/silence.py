"""Silence: which brokers did not answer the last time, so that nobody waits long for them again.

Room: flight. Knows addresses, no topics. Any thread may call.
Holds: of a silent broker no more than one question is under way that nobody waits for; one that
answers again, however late, is waited for from then on.
See: gathering.py, which asks; forwarding.py, whose connections all callers share.
"""

from __future__ import annotations

import threading

ASK_SECONDS = 3.0
AGAIN_SECONDS = 0.1
"""So long a caller waits for a broker that did not answer the last time. It is given ASK_SECONDS
all the same: if it answers later, it is waited for again from the next time on."""


class Silence:
    """Which brokers were silent the last time they were asked.

    >>> silence = Silence()
    >>> silence.begins("dejaq://b"), silence.ended("dejaq://b", answered=False)
    (3.0, None)
    >>> silence.begins("dejaq://b"), silence.begins("dejaq://b")
    (0.1, 0.0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._silent: set[str] = set()
        self._asked: set[str] = set()

    def begins(self, url: str) -> float:
        """How long to wait for a broker that is asked now, seconds; 0 = it is not to be asked, as
        it is silent and asked already."""
        with self._lock:
            if url not in self._silent:
                return ASK_SECONDS
            if url in self._asked:
                return 0.0
            self._asked.add(url)
            return AGAIN_SECONDS

    def ended(self, url: str, *, answered: bool) -> None:
        """It answered, or it did not, in ASK_SECONDS."""
        with self._lock:
            self._asked.discard(url)
            (self._silent.discard if answered else self._silent.add)(url)
