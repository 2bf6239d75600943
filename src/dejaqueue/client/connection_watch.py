"""Whether a client's streams have a broker: a log line and a call when that is lost, and found.

Room: client. Told by the streams; opens and closes nothing itself.
Holds: a change is told once, however many streams notice it: lost with the first stream that has
no broker, found when none of them is without; changes are told in their order, on a thread of their
own, so that the function may take its time.
See: link.py and consuming/consume_core.py, which tell it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dejaqueue.clock import Clock

log = logging.getLogger("dejaqueue.client")


@dataclass(frozen=True, slots=True)
class ConnectionChange:
    """The connection to the broker was lost, or found again.

    Attributes:
        is_connected: False = lost, True = found again.
        topic: of the stream that noticed it.
        reason: why it was lost, in words; "" when it was found.
        lost_ms: how long it was lost, milliseconds; 0 when it was lost just now.
    """

    is_connected: bool
    topic: str
    reason: str = ""
    lost_ms: int = 0


OnConnection = Callable[[ConnectionChange], object]


class ConnectionWatch:
    """What the streams of one client know of its connection.

    Args:
        where: the broker's URL.
        on_change: called with each change; what it raises is logged.
    """

    def __init__(self, where: str, clock: Clock, on_change: OnConnection | None = None) -> None:
        self.where = where
        self._clock = clock
        self._on_change = on_change
        self._mutex = threading.Lock()
        self._without: set[int] = set()
        self._since_us = 0
        self._changes: deque[ConnectionChange] = deque()
        self._is_telling = False

    def lost(self, stream: object, topic: str, reason: object) -> None:
        """This stream has no broker now."""
        with self._mutex:
            first = not self._without
            self._without.add(id(stream))
            if not first:
                return
            self._since_us = self._clock.now_us()
            text = " ".join(str(reason).split())
            self._tell(ConnectionChange(False, topic, text))

    def found(self, stream: object, topic: str) -> None:
        """This stream has a broker. Cheap where it had one before."""
        if id(stream) not in self._without:
            return
        with self._mutex:
            self._without.discard(id(stream))
            if self._without:
                return
            lost_ms = max(self._clock.now_us() - self._since_us, 0) // 1000
            self._tell(ConnectionChange(True, topic, lost_ms=lost_ms))

    def forget(self, stream: object) -> None:
        """This stream is closed: whether it had a broker is of no interest any more."""
        with self._mutex:
            self._without.discard(id(stream))

    def _tell(self, change: ConnectionChange) -> None:
        """Under the mutex: log it, and leave it to the thread that calls."""
        if change.is_connected:
            found = "%s: connection found again after %.1f s (topic %s)"
            log.info(found, self.where, change.lost_ms / 1000, change.topic)
        else:
            log.warning(
                "%s: connection lost (topic %s): %s", self.where, change.topic, change.reason
            )
        if self._on_change is None:
            return
        self._changes.append(change)
        if not self._is_telling:
            self._is_telling = True
            threading.Thread(target=self._call, name="dejaq-connection", daemon=True).start()

    def _call(self) -> None:
        assert self._on_change is not None
        while True:
            with self._mutex:
                if not self._changes:
                    self._is_telling = False
                    return
                change = self._changes.popleft()
            try:
                self._on_change(change)
            except Exception:
                log.exception("on_connection raised for %r", change)
