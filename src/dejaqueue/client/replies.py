"""Replies that a stream waits for: futures by number, one reading thread, one end.

Room: client. What a DoPut, a DoExchange and a lane have in common.
Holds: each future ends once: with its reply, or with what ended the stream.
See: flight_transport.py and lane.py, whose streams these are; silence_watch.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from dejaqueue.client.flight_errors import as_seen
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import DejaQError, InternalError, Unavailable
from dejaqueue.wire.frames import Reply

CLOCK = SteadyClock()
CLOSE_SECONDS_MAX = 10.0
"""Closing waits this long for a stream's last replies."""


def fail(reply: Future[Any], error: DejaQError) -> None:
    """End a future that has not ended yet."""
    if not reply.done():
        reply.set_exception(error)


class Replies:
    """What a DoPut and a DoExchange have in common: futures by number, and one end."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.pending: dict[int, Future[Reply]] = {}
        self.end: DejaQError | None = None
        self.thread: threading.Thread | None = None
        self.closing = False
        self.is_whole = False
        """It has ended as its client wished."""
        self._since_us = 0
        self.heard_us = CLOCK.now_us()
        """When the broker said something last, or the stream began."""

    def waits_since_us(self) -> int | None:
        """Since when a reply is waited for; see silence_watch.py."""
        return self._since_us if self.pending else None

    def register(self, number: int) -> Future[Reply]:
        """A future that the reply of this number will end. Call under the mutex."""
        reply: Future[Reply] = Future()
        if self.end is not None:
            reply.set_exception(self.end)
        else:
            if not self.pending:
                self._since_us = CLOCK.now_us()
            self.pending[number] = reply
        return reply

    def answer(self, frame: Reply) -> None:
        """End the future of a reply; called by the reading thread."""
        waiting = self.pending.pop(frame.number, None)
        self._since_us = CLOCK.now_us()
        if waiting is None:
            raise InternalError(f"the broker answered number {frame.number}, which was not asked")
        if frame.error is not None:
            frame = replace(frame, error=as_seen(frame.error))
        waiting.set_result(frame)

    def ended(self, error: DejaQError | None) -> None:
        """No reply comes any more: whatever still waits ends with an error."""
        with self.mutex:
            self.end = error or Unavailable("the stream is closed")
            left, self.pending = self.pending, {}
        # What was on its way when the stream broke has an unknown outcome, whatever broke it;
        # only a refusal of the broker (a bad descriptor, a bad schema) is the answer itself.
        for reply in left.values():
            fail(reply, self.end)

    def start(self, name: str, read: Callable[[], None]) -> None:
        """Start the reading thread. A daemon: a silent server must not keep a program alive."""
        self.thread = threading.Thread(target=read, name=f"dejaq-{name}", daemon=True)
        self.thread.start()

    def join(self) -> bool:
        """Wait for the reading thread; False if it did not end in time."""
        thread = self.thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(CLOSE_SECONDS_MAX)
        return not thread.is_alive()
