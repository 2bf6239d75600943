"""Threads that append groups: one for each worker, or one for each append where that may hang.

Room: broker.
Holds: a worker's committer appends in the order in which groups were submitted; where journals are
on servers each append has a thread, and one partition never has two appends on their way.
See: commit.py, which submits; docs/adr/0006-the-next-group-while-this-one-syncs.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from queue import SimpleQueue


class Committer:
    """A thread that appends groups for one worker.

    Attributes:
        is_apart: it appends for journals on servers, where the worker never waits for it.
    """

    is_apart = False

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Return when the thread runs."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was submitted, then return. Twice or before start is fine."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        """True while its thread runs."""
        return self._thread.is_alive()

    def submit(self, append: Callable[[], None]) -> None:
        """Run `append`, which must not raise, after what was submitted before."""
        self._queue.put(append)

    def wait(self, landed: threading.Condition, is_landed: Callable[[], bool]) -> None:
        """Return when what was submitted has come so far; `landed` is notified then."""
        with landed:
            landed.wait_for(is_landed)

    def _run(self) -> None:
        while True:
            append = self._queue.get()
            if append is None:
                return
            append()


class ApartCommitter(Committer):
    """Appends of partitions whose journals are on a server: one that hangs holds no other.

    Args:
        executor: with a thread for each of those that may hang at once.
    """

    is_apart = True

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def start(self) -> None:
        """Its threads start when they are needed."""

    def stop(self) -> None:
        """Finish what was submitted. Twice is fine."""
        self.executor.shutdown()

    @property
    def is_alive(self) -> bool:
        """Its threads do not end by themselves."""
        return True

    def submit(self, append: Callable[[], None]) -> None:
        """Run `append` soon. Of one partition there is one at a time, so their order holds."""
        self.executor.submit(append)
