"""Our errors as Flight's: the text, then the fields as JSON in a line of their own.

Room: flight. The one place where an error becomes a Flight status.
Holds: behind our text and our JSON there are at most the few words that Arrow and gRPC add to every
status: no traceback, no file, no cause.
See: client/flight_errors.py for the way back; docs/wire.md, "Errors".
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.errors import DejaQError, InternalError, ResourceExhausted, to_fields


class _Untraced:
    """An exception of which Arrow tells the class alone.

    Flight's own exceptions become a status of their text. Any other one becomes a status of what
    `traceback.format_exception` makes of it: files, lines of code and causes, for whoever called.
    Arrow falls back to the name of the class where that fails, and here it does.
    """

    @property
    def __cause__(self) -> BaseException | None:
        raise AttributeError("the cause is not told")

    @__cause__.setter
    def __cause__(self, _cause: BaseException | None) -> None:
        """Kept by nobody."""


def _untraced(kind: type[Exception]) -> type[Exception]:
    return type(kind.__name__, (_Untraced, kind), {})


# Arrow's own classes stand for the gRPC statuses that Flight has no class for.
_FLIGHT_ERRORS: dict[str, type[Exception]] = {
    "UNAVAILABLE": _untraced(flight.FlightUnavailableError),
    "INTERNAL": _untraced(flight.FlightInternalError),
    "ABORTED": _untraced(flight.FlightUnavailableError),
    "INVALID_ARGUMENT": _untraced(pa.ArrowInvalid),
    "NOT_FOUND": _untraced(pa.ArrowKeyError),
    "UNAUTHENTICATED": _untraced(flight.FlightUnauthenticatedError),
    "PERMISSION_DENIED": _untraced(flight.FlightUnauthorizedError),
}
_OTHER_ERROR = _untraced(flight.FlightServerError)


def to_flight(error: DejaQError) -> Exception:
    """The Flight error of one of ours."""
    kind = _FLIGHT_ERRORS.get(error.flight_status, _OTHER_ERROR)
    translated: Exception = kind(f"{error.told()}\ndejaq:{json.dumps(to_fields(error))}")
    return translated


class translated:  # noqa: N801 - reads as a word: with translated()
    """The boundary where our errors become Flight's, and a bug never becomes a traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, flight.FlightError):
            return  # Flight's own: the connection broke, and says so in a line
        raise to_flight(_ours(error)) from None


def _ours(error: Exception) -> DejaQError:
    if isinstance(error, DejaQError):
        return error
    if isinstance(error, MemoryError):
        return ResourceExhausted("no memory for this call (server.memory_bytes_max)", 1_000)
    bug = InternalError(f"{type(error).__name__}: {error}")
    bug.__cause__ = error  # for the log
    return bug
