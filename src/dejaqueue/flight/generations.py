"""The gRPC servers of one port: the one that listens, and those that only finish their calls.

Room: flight. pyarrow takes certificates when a server is made, and never again; so new ones make a
new server. gRPC's shutdown closes the port at once and lets calls that are in progress end.
Holds: no call is ended by a change of certificates; who connects when `renew` has returned gets the
new ones. In between nobody listens: 2 to 12 ms, measured; clients are refused then and try again.
See: docs/adr/0018-certificates-change-while-the-broker-runs.md, what else was tried.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.clock import SteadyClock, Wake

log = logging.getLogger("dejaqueue.flight")

RETRY_US = 1_000
RETRY_US_MAX = 100_000
CLOSE_US = 300_000
"""Clients that were told of the end have so long to close their streams."""
LOOK_US = 20_000
LOUD_US = 1_000_000
"""How long a port may stay taken before a line is logged."""


class Service(Protocol):
    """A gRPC server, as pyarrow has it."""

    port: int

    def wait(self) -> None:
        """Return when it has been shut down."""
        ...

    def shutdown(self) -> None:
        """Close the port; return when all calls have ended."""
        ...

    def end_streams(self) -> None:
        """Tell every open consumer that the broker goes away."""
        ...


class Generations:
    """Has a server listen between `start` and `stop`.

    Args:
        make: opens a server on a port. Raises OSError, ArrowException: it cannot be opened.
    """

    def __init__(self, make: Callable[[int], Service]) -> None:
        self._make = make
        self._current: Service | None = None
        self._ending: list[tuple[Service, threading.Thread]] = []
        self._mutex = threading.Lock()
        self._stopping, self._closed = Wake(), Wake()
        self._stopped = False
        self._clock = SteadyClock()

    @property
    def port(self) -> int:
        """The port that is open."""
        assert self._current is not None, "not started"
        return int(self._current.port)

    def start(self, port: int) -> None:
        """Return when the port is open. Raises OSError, ArrowException."""
        self._current = self._running(port)

    def start_again(self, port: int) -> None:
        """Return when the port is open, which somebody else may still have, or at `stop`."""
        opened = self._opened_again(port)
        with self._mutex:
            if opened is not None and self._stopped:
                self._ending.append((opened, self._closing(opened)))
            else:
                self._current = opened

    def renew(self) -> None:
        """Replace the server by a new one on the same port; return when that listens."""
        with self._mutex:
            old = self._current
            if old is None:
                return
            port = int(old.port)
            self._ending = [one for one in self._ending if one[1].is_alive()]
            self._ending.append((old, self._closing(old)))
            if len(self._ending) > limits.FLIGHT_GENERATIONS_MAX:
                # Its consumers connect anew, and lose nothing by it.
                self._ending[0][0].end_streams()
            self._current = self._opened_again(port)

    def stop(self, timeout_seconds: float, owes: Callable[[], bool] = lambda: True) -> bool:
        """End all streams and close the port. Twice or before start is fine.

        Args:
            owes: whether a client still waits for something. Streams that wait for their clients
                never end by themselves, so nobody waits for those longer than clients take that
                close theirs when they are told.

        Returns:
            False if streams of clients that do not end them were given up.
        """
        self._stopped = True
        self._stopping.ring()
        with self._mutex:
            last, self._current = self._current, None
            if last is not None:
                self._ending.append((last, self._closing(last)))
            ending, self._ending = self._ending, []
        for service, _ in ending:
            service.end_streams()
        began_us = now_us = self._clock.now_us()
        until_us = began_us + int(timeout_seconds * 1e6)
        while any(closer.is_alive() for _, closer in ending) and now_us < until_us:
            if now_us - began_us >= CLOSE_US and not owes():
                break
            self._clock.wait_until(min(until_us, now_us + LOOK_US), self._closed)
            now_us = self._clock.now_us()
        return not any(closer.is_alive() for _, closer in ending)

    def _closing(self, service: Service) -> threading.Thread:
        """A thread that shuts a server down: gRPC has no other way to do it beside something
        else."""

        def close() -> None:
            service.shutdown()
            self._closed.ring()

        closer = threading.Thread(target=close, name="dejaq-flight-stop", daemon=True)
        closer.start()
        return closer

    def _running(self, port: int) -> Service:
        service = self._make(port)
        # Not `serve`, which takes SIGTERM and SIGINT over from the program's own handlers.
        threading.Thread(target=service.wait, name="dejaq-flight", daemon=True).start()
        return service

    def _opened_again(self, port: int) -> Service | None:
        """A server on a port that another one is just giving back; None = the broker stops."""
        began_us, pause_us, said = self._clock.now_us(), RETRY_US, False
        while not self._stopped:
            try:
                return self._running(port)
            except (OSError, pa.ArrowException) as wrong:
                now_us = self._clock.now_us()
                if not said and now_us - began_us > LOUD_US:
                    said = True
                    log.error("port %d cannot be opened again, trying on: %s", port, wrong)
            self._clock.wait_until(now_us + pause_us, self._stopping)
            pause_us = min(2 * pause_us, RETRY_US_MAX)
        return None
