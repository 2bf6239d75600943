"""How a store of records waits, locks, and runs work in the background.

Room: journal. The simulation of a cluster brings another one, in which no thread really waits.
Holds: what holds a lock while it waits for the server got the lock from here.
See: store.py, which is given one; writer.py, which waits.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager

from dejaqueue.clock import Clock, SteadyClock


class Concurrency:
    """Elapsed time, locks and a thread of this process.

    Attributes:
        clock: what waiting goes by.
    """

    clock: Clock

    def __init__(self) -> None:
        self.clock = SteadyClock()

    def lock(self) -> AbstractContextManager[object]:
        """A lock that may be held while its holder waits for the server."""
        return threading.Lock()

    def executor(self) -> Executor:
        """Does in the background what it is given, in order."""
        return ThreadPoolExecutor(1, thread_name_prefix="dejaq-records")
