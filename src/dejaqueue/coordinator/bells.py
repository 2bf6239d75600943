"""Bells that ring for changes below a prefix, and the check of what a fact may be.

Room: coordinator. What every backend would otherwise write again.
Holds: a watch that is closed rings no more once `close` has returned, also when the bell itself
closes it; a bell that fails silences no other.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable

from dejaqueue.coordinator.interface import Watch
from dejaqueue.errors import BadRequest

KEY_BYTES_MAX = 500
VALUE_BYTES_MAX = 1 << 20
TTL_MS_MIN = 500

_PREFIX = re.compile(r"[A-Za-z0-9._/-]{0,500}", re.ASCII)
_log = logging.getLogger(__name__)


def check_prefix(prefix: str) -> str:
    """A prefix that keys may have. Raises BadRequest."""
    if not _PREFIX.fullmatch(prefix):
        raise BadRequest("key", f"at most {KEY_BYTES_MAX} of A-Z a-z 0-9 . _ - and /", prefix)
    return prefix


def check_key(key: str) -> str:
    """A key that a fact may have. Raises BadRequest."""
    if not key:
        raise BadRequest("key", "at least one character", key)
    return check_prefix(key)


def check_fact(key: str, value: bytes, revision: int | None, ttl_ms: int | None) -> None:
    """What `put` may be given. Raises BadRequest."""
    check_key(key)
    if len(value) > VALUE_BYTES_MAX:
        raise BadRequest("value", f"at most {VALUE_BYTES_MAX} bytes", len(value))
    if revision is not None and revision < 0:
        raise BadRequest("revision", "0 or more", revision)
    if ttl_ms is not None and ttl_ms < TTL_MS_MIN:
        raise BadRequest("ttl_ms", f"at least {TTL_MS_MIN}", ttl_ms)


class _BellWatch(Watch):
    """One bell and its prefix."""

    def __init__(self, bells: Bells, prefix: str, bell: Callable[[str | None], None]) -> None:
        self._bells = bells
        self.prefix = prefix
        self._bell: Callable[[str | None], None] | None = bell
        # Held while the bell rings, so that who closes waits for that; re-entrant, because a bell
        # may close its own watch.
        self._ringing = threading.RLock()

    def ring(self, key: str | None) -> None:
        """Ring for a change of this fact, None = of any, unless closed."""
        with self._ringing:
            if self._bell is None:
                return
            try:
                self._bell(key)
            except Exception:  # noqa: BLE001 - whatever a listener does, the others hear theirs
                _log.exception("a bell below %r failed", self.prefix)

    def close(self) -> None:
        """Ring no more."""
        self._bells.forget(self)
        with self._ringing:
            self._bell = None


class Bells:
    """The watches of one coordinator. Rings on the thread that calls `ring`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[_BellWatch] = []

    def add(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring this bell from now on. Raises BadRequest."""
        return self.add_keyed(prefix, lambda _: bell())

    def add_keyed(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `add`; the bell is given the key that changed, None = any. Raises BadRequest."""
        watch = _BellWatch(self, check_prefix(prefix), bell)
        with self._lock:
            self._watches.append(watch)
        return watch

    def forget(self, watch: _BellWatch) -> None:
        """Drop a watch from the list; twice is fine."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def ring(self, key: str | None = None) -> None:
        """Ring for a change of this fact; None = anything may have changed."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            if key is None or key.startswith(watch.prefix):
                watch.ring(key)

    def ring_below(self, prefix: str) -> None:
        """Ring those who watch exactly this prefix."""
        with self._lock:
            watches = [watch for watch in self._watches if watch.prefix == prefix]
        for watch in watches:
            watch.ring(None)

    def is_empty(self) -> bool:
        """True if nobody listens."""
        return not self._watches

    def close(self) -> None:
        """Close every watch."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.close()
