"""Where the broker's own work runs: on threads, unless somebody brings something else.

Room: broker. The simulator (testing/simulation) gives a broker one that starts no thread at all and
decides what runs next.
Holds: everything that a broker starts comes from here, and each lock that is held over a wait; the
servers' threads are not the broker's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.shard.committer import ApartCommitter, Committer
from dejaqueue.clock import Clock


class Running(Protocol):
    """What was started."""

    def join(self) -> None:
        """Return when it has ended."""
        ...


APART = 64
"""Journals on servers that may hang at once before one holds another."""
BEGIN_AGAIN_SECONDS = 1.0

log = logging.getLogger("dejaqueue.broker")


class Threads:
    """Threads of this process."""

    _apart: ApartCommitter | None = None

    def worker(self, name: str, clock: Clock) -> PartitionWorker:
        """A worker that is not started yet."""
        if self._apart is None:
            self._apart = ApartCommitter(self.executor("dejaq-apart", APART))
        return PartitionWorker(name, clock, Committer(f"{name}-committer"), self._apart)

    def executor(self, name: str, count: int = 1) -> Executor:
        """A pool of `count` threads; tasks start in order."""
        return ThreadPoolExecutor(count, thread_name_prefix=name)

    def future(self) -> Future[Any]:
        """What one thread waits for until another one answers."""
        return Future()

    def lock(self) -> AbstractContextManager[object]:
        """A lock that may be held while its holder waits for a disk, a server or an answer."""
        return threading.Lock()

    def start(self, name: str, run: Callable[[], None], *, daemon: bool = False) -> Running:
        """Run a function once, now.

        Args:
            daemon: the process may end before it does.
        """
        thread = threading.Thread(target=run, name=name, daemon=daemon)
        thread.start()
        return thread

    def start_for_ever(self, name: str, run: Callable[[], None]) -> Running:
        """Run a loop, which returns when it is told to: once more where a bug of ours ends it.

        A broker whose rounds have ended says that it is there, and takes and gives nothing.
        """

        def go_on() -> None:
            while True:
                try:
                    run()
                    return
                except Exception:  # whatever it is: a loop that has ended would be missed for ever
                    log.exception("%s broke off, and begins again", name)
                    threading.Event().wait(BEGIN_AGAIN_SECONDS)

        return self.start(name, go_on, daemon=True)
