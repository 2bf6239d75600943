"""The one Flight address of a broker of several processes: one of them has it at a time.

gRPC would let several processes listen at one port, and the kernel share callers out; pyarrow
switches that off. So the parent says who has the port, in a fact, and says another when that one
has ended. Clients that follow leave it at once for the process that has their topic.

    fact address         the name of the process whose turn it is
    fact address/open    the name of the process that has opened it

Room: flight.
Holds: who is named opens the port as soon as it is free, says so, and keeps it until it ends.
See: ../cli/processes.py, the parent; docs/adr/0048-processes-divide-a-directory.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dejaqueue.clock import SteadyClock, Wake
from dejaqueue.coordinator.interface import Coordinator, Watch
from dejaqueue.errors import DejaQError

KEY = "address"
OPEN = "address/open"
AGAIN_US = 250_000

log = logging.getLogger("dejaqueue.flight")


class SharedAddress:
    """What one of the processes does about it.

    Args:
        enter: opens the port, and returns when it is open.
        name: of this process.
        port: of the address.
    """

    def __init__(
        self, enter: Callable[[int], None], coordinator: Coordinator, name: str, port: int
    ) -> None:
        self._enter, self._coordinator = enter, coordinator
        self._name, self._port = name, port
        self._clock, self._wake = SteadyClock(), Wake()
        self._stopped = False
        self._watch: Watch | None = None

    def start(self) -> None:
        """Open the port when it is this process's turn. Raises Unavailable."""
        self._watch = self._coordinator.watch(KEY, self._wake.ring)
        threading.Thread(target=self._run, name="dejaq-address", daemon=True).start()

    def stop(self) -> None:
        """Do not open it any more."""
        self._stopped = True
        if self._watch is not None:
            self._watch.close()
        self._wake.ring()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            again_us: int | None = None
            try:
                fact = self._coordinator.get(KEY)
                if fact is not None and fact.value.decode() == self._name:
                    self._enter(self._port)
                    self._coordinator.put(OPEN, fact.value, None)
                    return
            except DejaQError as error:
                log.warning("whose turn it is at port %d is not known: %s", self._port, error)
                again_us = self._clock.now_us() + AGAIN_US
            self._clock.wait_until(again_us, self._wake)
