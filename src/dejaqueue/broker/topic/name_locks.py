"""One lock for each topic's name: calls that make, change or delete the same topic take turns.

Room: broker. Any thread may call it.
Holds: calls for different names never wait for each other, however long a disk or a server takes;
a name that nobody changes has no lock. Nobody holds two of them.
See: broker.py, whose own lock guards its dictionary of topics and nothing else; threads.py, which
makes the locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Lock = AbstractContextManager[object]


class NameLocks:
    """Locks by name, each there while somebody holds it or waits for it.

    Args:
        make_lock: makes a lock whose holder may wait for a disk or a server.
    """

    def __init__(self, make_lock: Callable[[], Lock]) -> None:
        self._make_lock = make_lock
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[Lock, int]] = {}
        """By name, with the number of calls that hold the lock or wait for it."""

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold the lock of a name; waits while another call does."""
        with self._guard:
            lock, users = self._locks[name] if name in self._locks else (self._make_lock(), 0)
            self._locks[name] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks.pop(name)
                if users > 1:
                    self._locks[name] = lock, users - 1

    def wait(self) -> None:
        """Return when every call that holds a lock now has let it go."""
        with self._guard:
            names = list(self._locks)
        for name in names:
            with self.held(name):
                pass
