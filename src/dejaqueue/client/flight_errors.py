"""Flight errors to ours: what a broken call or stream means to the caller.

Room: client. Reads texts and classes of errors; opens nothing.
Holds: every exception of pyarrow or Flight becomes one DejaQError; what the broker wrote after
`MARK` comes back as the same class with the same fields.
See: docs/wire.md, "Errors".
"""

from __future__ import annotations

import json

import pyarrow as pa
from pyarrow import flight

from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Fenced,
    InternalError,
    ResourceExhausted,
    Unavailable,
    from_fields,
)

MARK = "\ndejaq:"
"""What stands before the JSON of an error in a Flight status text."""

_WRONG_DOORS = (
    (
        "http1.x server",
        "this is the HTTP port; give Flight's (7464 unless server.port is set)",
    ),
    ("wrong version number", "this port speaks no TLS; give dejaq:// in place of dejaqs://"),
)
"""What gRPC says when another port was meant, and what to do."""

_UNHEARD = "failed to connect to all addresses"
"""What gRPC says when there was no connection for the call, so nothing of it left."""

_BROKEN = (
    flight.FlightUnavailableError,
    flight.FlightCancelledError,
    flight.FlightTimedOutError,
    pa.ArrowCancelled,
    OSError,
)


def as_seen(error: DejaQError) -> DejaQError:
    """A broker's error as whoever calls a client is to see it, and as clients try again.

    That a broker lost a partition while it worked on a call is no more to a caller than that it is
    away for the moment: the next attempt finds the owner.
    """
    if isinstance(error, Fenced):
        return Unavailable(f"another broker took the partition over: {error}")
    return error


def error_of(wrong: BaseException, url: str = "") -> DejaQError:
    """The DejaQ error that an exception of pyarrow means.

    A connection problem, and anything else that leaves the outcome unknown, is Unavailable.

    Args:
        url: which broker it was, to be named where it is out of reach; "" = that is not said.
    """
    if isinstance(wrong, DejaQError):
        return wrong
    text = str(wrong)
    _, mark, rest = text.partition(MARK)
    if mark:
        try:
            # gRPC writes its own words after ours, so the JSON ends where it ends.
            values, _ = json.JSONDecoder().raw_decode(rest)
            return as_seen(from_fields(values))
        except (ValueError, TypeError, AttributeError):
            return InternalError(f"the broker sent an error that cannot be read: {text[:300]}")
    line = text.split(" gRPC client debug context", 1)[0].strip().splitlines()
    shown = line[0][:300] if line else type(wrong).__name__
    where = f"the broker at {url}" if url else "the broker"
    if isinstance(wrong, _BROKEN):
        for said, advice in _WRONG_DOORS:
            if said in text:
                return Unavailable(f"{where} is out of reach: {advice}")
        unreached = Unavailable(f"{where} is out of reach: {shown}")
        unreached.is_unheard = _UNHEARD in text
        return unreached
    if "RESOURCE_EXHAUSTED" in text:
        return ResourceExhausted(shown)
    if isinstance(wrong, pa.ArrowInvalid | pa.ArrowTypeError | pa.ArrowNotImplementedError):
        return BadRequest("batch", "record batches of the stream's schema", shown)
    return Unavailable(f"the connection broke: {shown}")
