"""Threads that append groups: one for each worker, or one for each append where that may hang.

Room: broker.
Holds: what waits for a worker's committer is appended at once, and so is what a worker submitted in
one of its turns: partitions of one shard share a write and a sync; where journals are on servers
each append has a thread. One partition never has two appends on their way.
See: commit.py, which submits; docs/adr/0006-the-next-group-while-this-one-syncs.md;
docs/adr/0036-one-log-for-many-partitions.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from queue import SimpleQueue

from dejaqueue.journal.appending import append_together
from dejaqueue.journal.interface import Append


class Committer:
    """A thread that appends groups for one worker.

    Attributes:
        is_apart: it appends for journals on servers, where the worker never waits for it.
        executor: does what else has to ask the server of such a journal; None = nothing has to.
    """

    is_apart = False
    executor: Executor | None = None
    _turn: list[Append] | None = None
    """What was submitted in the worker's turn, on its thread alone; None = it takes none."""
    _turn_thread = 0

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Sequence[Append] | None] = SimpleQueue()
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

    def submit(self, append: Append) -> None:
        """Append, after what was submitted before, and tell of it; `landed` must not raise."""
        turn = self._turn
        if turn is not None and threading.get_ident() == self._turn_thread:
            turn.append(append)
        else:
            self._put([append])

    def begin_turn(self) -> None:
        """Keep what this thread submits until `end_turn`, to append it together."""
        self._turn_thread = threading.get_ident()
        self._turn = []

    def end_turn(self, *, behind: bool) -> None:
        """Append what was kept.

        Args:
            behind: leave it to the committer's thread and return; False = on this one, now.
        """
        appends, self._turn = self._turn, None
        if not appends:
            return
        if behind:
            self._put(appends)
        else:
            append_together(appends)

    def _flush(self) -> None:
        """Somebody waits for something that may have been kept: it goes on its way."""
        if self._turn and threading.get_ident() == self._turn_thread:
            appends, self._turn = self._turn, []
            self._put(appends)

    def _put(self, appends: Sequence[Append]) -> None:
        """Have them appended, on the committer's thread."""
        self._queue.put(appends)

    def wait(self, landed: threading.Condition, is_landed: Callable[[], bool]) -> None:
        """Return when what was submitted has come so far; `landed` is notified then."""
        self._flush()
        with landed:
            landed.wait_for(is_landed)

    def _run(self) -> None:
        while True:
            appends = self._queue.get()
            together: list[Append] = []
            while appends is not None:
                together += appends
                if self._queue.empty():
                    break
                appends = self._queue.get()  # nobody else takes from it
            append_together(together)
            if appends is None:
                return


class ApartCommitter(Committer):
    """Appends of partitions whose journals are on a server: one that hangs holds no other.

    Args:
        executor: with a thread for each of those that may hang at once.
    """

    is_apart = True
    executor: Executor

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

    def submit(self, append: Append) -> None:
        """Append soon. Of one partition there is one at a time, so their order holds."""
        self.executor.submit(append_together, [append])
