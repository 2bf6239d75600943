"""Calls counted: how many of each method, and how they ended.

Room: flight. The one middleware there is, around callers.py: another would have every call wait for
the interpreter twice more.
See: http/catalogue.py for what is shown.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.broker.broker import Broker
from dejaqueue.flight.callers import Caller, Callers

_STATUSES: tuple[tuple[type[BaseException], str], ...] = (
    (flight.FlightUnauthenticatedError, "unauthenticated"),
    (flight.FlightUnauthorizedError, "unauthorized"),
    (flight.FlightUnavailableError, "unavailable"),
    (flight.FlightTimedOutError, "timed_out"),
    (flight.FlightCancelledError, "cancelled"),
    (pa.ArrowInvalid, "invalid"),
    (pa.ArrowKeyError, "not_found"),
    (pa.ArrowNotImplementedError, "unimplemented"),
)


class OpenCalls:
    """How many calls are in progress, streams among them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.count = 0

    def add(self, calls: int) -> None:
        """So many more, or fewer, are in progress."""
        with self._mutex:
            self.count += calls


class CallCounter(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Counts the calls of one server.

    Args:
        broker: has the counters.
        callers: finds out who makes each call, and lets it in or refuses.
        open_calls: of all servers of this broker.
    """

    def __init__(self, broker: Broker, callers: Callers, open_calls: OpenCalls) -> None:
        self._counts, self._open_calls = broker.counting, open_calls
        self._callers = callers

    def start_call(self, call: flight.CallInfo, headers: dict[str, Any]) -> Caller:
        """A call begins."""
        caller = self._callers.start_call(call, headers)
        method = call.method.name.lower()
        self._counts.flight_begun.add((method,))
        self._open_calls.add(1)
        caller.ended = partial(self._ended, method)
        return caller

    def _ended(self, method: str, exception: BaseException | None) -> None:
        self._counts.flight_ended.add((method, status_of(exception)))
        self._open_calls.add(-1)


def status_of(exception: BaseException | None) -> str:
    """How a call ended, in a word out of a small set."""
    if exception is None:
        return "ok"
    return next((word for kind, word in _STATUSES if isinstance(exception, kind)), "internal")
