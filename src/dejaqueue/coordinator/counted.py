"""Bells over a server that counts its changes: asked now and then, and heard where it tells.

Room: coordinator. For backends whose every change has the next number of one counter.
Holds: a change that was not told, and a counter that went anywhere but one up, ring every bell; so
does the server when it is back. Nothing depends on what is told but how soon a bell rings.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from dejaqueue.coordinator.bells import Bells
from dejaqueue.errors import DejaQError, Unavailable

AGAIN_S = 0.2
LATE_S = 0.1
"""How much later than it is counted a change may be announced."""
UNTOLD_MAX = 3
"""Changes that a channel may miss before it is opened anew."""

_log = logging.getLogger(__name__)


class Told(NamedTuple):
    """What a server tells: a number of its counter, and what changed with it.

    Attributes:
        key: of the fact; "" = several.
        is_change: False for what counts and changes no fact, such as a renewal.
    """

    number: int
    key: str
    is_change: bool = True


class Channel(Protocol):
    """Where a server tells of its changes, in the order of their numbers."""

    def hear(self, seconds: float) -> Told | None:
        """The next of them, None if none comes. Raises Unavailable."""
        ...

    def close(self) -> None:
        """Hear no more; twice is fine."""
        ...


class CountedChanges:
    """A thread that asks for the counter every `poll_ms`, hears the channel, and rings.

    Args:
        count: the number of the last change; raises Unavailable.
        listen: opens the channel; None = there is none.
    """

    def __init__(
        self,
        bells: Bells,
        count: Callable[[], int],
        listen: Callable[[], Channel] | None,
        poll_ms: int,
    ) -> None:
        self._bells, self._count, self._listen = bells, count, listen
        self._poll_s = poll_ms / 1_000
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._last = -1
        self._untold = 0
        self._was_away = False

    def start(self) -> None:
        """Start the thread if it is not running."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="dejaq-facts", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread, within `poll_ms` and a call that waits."""
        self._stopped.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def ring_again(self) -> None:
        """The server is back after it was away: open the channel anew and ring every bell."""
        self._was_away = True

    def _run(self) -> None:
        while not self._stopped.is_set():
            channel: Channel | None = None
            try:
                channel = self._listen() if self._listen is not None else None
                self._follow(channel)
            except DejaQError as error:
                _log.debug("asking for changes failed: %r", error)
                self._stopped.wait(AGAIN_S)
            except Exception:  # noqa: BLE001 - a thread that ends would miss every change to come
                _log.exception("asking for changes failed")
                self._stopped.wait(AGAIN_S)
            finally:
                if channel is not None:
                    channel.close()

    def _follow(self, channel: Channel | None) -> None:
        self._was_away = False
        self._last = self._count()
        self._bells.ring()  # for what was missed while nobody asked
        asked = time.monotonic()
        while not self._stopped.is_set() and not self._was_away:
            left_s = asked + self._poll_s - time.monotonic()
            if left_s <= 0:
                self._compare(self._count(), channel)
                asked = time.monotonic()
            elif channel is None:
                self._stopped.wait(left_s)
            elif (told := channel.hear(left_s)) is not None:
                self._take(told)

    def _compare(self, number: int, channel: Channel | None) -> None:
        """Ring every bell if the counter is another than what was told."""
        while channel is not None and self._last < number:
            told = channel.hear(LATE_S)  # it may be on its way
            if told is None:
                break
            self._take(told)
        if number == self._last:
            self._untold = 0
            return
        self._last = number
        self._bells.ring()
        self._untold += 1
        if channel is not None and self._untold >= UNTOLD_MAX:
            self._untold = 0
            raise Unavailable("the channel tells nothing any more")

    def _take(self, told: Told) -> None:
        """Ring for what the channel told."""
        if told.number == self._last + 1:
            self._last += 1
            if told.is_change:
                self._bells.ring(told.key or None)
        elif told.number > self._last:
            self._last = told.number
            self._bells.ring()
