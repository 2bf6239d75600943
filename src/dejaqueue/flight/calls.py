"""Calls counted: how many of each method, and how they ended.

Room: flight. A middleware of the server: it sees every call and changes none.
See: http/catalogue.py for what is shown.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.broker.counting import BrokerCounts

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


class CallCounter(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Counts the calls of one server."""

    def __init__(self, counts: BrokerCounts) -> None:
        self._counts = counts

    def start_call(self, call: flight.CallInfo, headers: dict[str, Any]) -> flight.ServerMiddleware:
        """A call begins."""
        method = call.method.name.lower()
        self._counts.flight_begun.add((method,))
        return _Call(self._counts, method)


class _Call(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, counts: BrokerCounts, method: str) -> None:
        self._counts = counts
        self._method = method

    def call_completed(self, exception: BaseException | None) -> None:
        """The call ended."""
        self._counts.flight_ended.add((self._method, status_of(exception)))


def status_of(exception: BaseException | None) -> str:
    """How a call ended, in a word out of a small set."""
    if exception is None:
        return "ok"
    return next((word for kind, word in _STATUSES if isinstance(exception, kind)), "internal")
