"""Consumers that a program left open when it ends: their acks are sent, the rest is given back.

Room: client. Knows that a consumer can be closed; nothing else of it.
Holds: the end of the program waits EXIT_SECONDS_MAX at most, whatever the broker does; a child that
was forked has nothing of its parent's to close.
See: consume_core.py; core.py, which tells of each consumer.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from contextlib import suppress
from typing import Protocol

from dejaqueue.errors import DejaQError
from dejaqueue.operating_system import after_fork

EXIT_SECONDS_MAX = 5.0
"""Acks that have no answer by then may have been carried out or not."""


class OpenConsumer(Protocol):
    """A consumer."""

    is_over: bool

    def close(self) -> None:
        """Send acks that wait, give back what was not handed over. Blocks."""
        ...


_CONSUMERS: weakref.WeakSet[OpenConsumer] = weakref.WeakSet()
_CLOSERS: set[threading.Thread] = set()
"""Those that close what nobody holds any more."""


def close_at_exit(consumer: OpenConsumer) -> None:
    """Close it when the program ends, if it is still there and open."""
    _CONSUMERS.add(consumer)


def close_soon(consumer: OpenConsumer) -> None:
    """Close it on another thread, as nobody holds it any more; the end of the program waits."""

    def close() -> None:
        try:
            _close(consumer)
        finally:
            _CLOSERS.discard(threading.current_thread())

    closer = threading.Thread(target=close, name="dejaq-abandon", daemon=True)
    _CLOSERS.add(closer)
    closer.start()


def close_all() -> None:
    """Close those that are open, and wait for those that are being closed, EXIT_SECONDS_MAX at
    most."""
    closing = list(_CLOSERS)
    left = [consumer for consumer in list(_CONSUMERS) if not consumer.is_over]
    closers = [
        threading.Thread(target=_close, args=(one,), name="dejaq-abandon", daemon=True)
        for one in left
    ]
    for closer in closers:
        closer.start()
    until = time.monotonic() + EXIT_SECONDS_MAX
    for closer in (*closing, *closers):
        closer.join(max(0.0, until - time.monotonic()))


def _close(consumer: OpenConsumer) -> None:
    with suppress(DejaQError):
        consumer.close()


atexit.register(close_all)
after_fork(_CONSUMERS.clear)
after_fork(_CLOSERS.clear)
