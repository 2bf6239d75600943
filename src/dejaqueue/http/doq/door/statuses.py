"""Our errors as gRPC statuses.

Room: http. The one place where an error becomes a status of DOQ's gRPC API.
Holds: a bug is told without its story; what may be tried again says when, in `retry-after-ms`.
See: errors.py, whose `flight_status` names them: Flight is gRPC.
"""

from __future__ import annotations

import grpc

from dejaqueue.errors import DejaQError, InternalError, TryLater

TEXT_CHARACTERS_MAX = 1_000
"""gRPC sends the text in a header; more than some kilobytes would arrive as an error of gRPC's."""
RETRY = "retry-after-ms"

Status = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]
"""Code, text, trailing metadata."""


def ours(error: Exception) -> DejaQError:
    """An error as one of ours: any other one is our bug."""
    if isinstance(error, DejaQError):
        return error
    bug = InternalError(f"{type(error).__name__}: {error}")
    bug.__cause__ = error  # for the log
    return bug


def status_of(error: DejaQError) -> Status:
    """What a call that ended with this error is answered."""
    more: tuple[tuple[str, str], ...] = ()
    if isinstance(error, TryLater):
        more = ((RETRY, str(error.retry_after_ms)),)
    text = error.told()[:TEXT_CHARACTERS_MAX].encode(errors="replace").decode()
    return grpc.StatusCode[error.flight_status], text, more
