"""Our errors as Flight's: the text, then the fields as JSON in a line of their own.

Room: flight.
See: client/flight_errors.py for the way back; docs/wire.md, "Errors".
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.errors import DejaQError, InternalError, to_fields

# Arrow's own classes stand for the gRPC statuses that Flight has no class for.
_FLIGHT_ERRORS: dict[str, type[Exception]] = {
    "UNAVAILABLE": flight.FlightUnavailableError,
    "INTERNAL": flight.FlightInternalError,
    "ABORTED": flight.FlightUnavailableError,
    "INVALID_ARGUMENT": pa.ArrowInvalid,
    "NOT_FOUND": pa.ArrowKeyError,
    "UNAUTHENTICATED": flight.FlightUnauthenticatedError,
    "PERMISSION_DENIED": flight.FlightUnauthorizedError,
}


def to_flight(error: DejaQError) -> Exception:
    """The Flight error of one of ours."""
    kind = _FLIGHT_ERRORS.get(error.flight_status, flight.FlightServerError)
    translated: Exception = kind(f"{error}\ndejaq:{json.dumps(to_fields(error))}")
    return translated


class translated:  # noqa: N801 - reads as a word: with translated()
    """The boundary where our errors become Flight's, and a bug never becomes a traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DejaQError):
            raise to_flight(error) from error
        if isinstance(error, Exception) and not isinstance(error, pa.ArrowException):
            raise to_flight(InternalError(f"{type(error).__name__}: {error}")) from error
