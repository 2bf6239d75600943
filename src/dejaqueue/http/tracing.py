"""Traces over HTTP: the context of a request that sends becomes the context of its messages.

Room: http. No spans of its own: caller and consumer have theirs (client/tracing.py).
Holds: what is no context is passed over; a message that has one keeps it.
See: schema/trace_context.py; docs/guides/tracing.md.
"""

from __future__ import annotations

import re
from typing import Any

from fastapi import Request

from dejaqueue.http.bodies import header
from dejaqueue.schema.trace_context import PARENT, STATE, STATE_BYTES_MAX, with_context

WELL_FORMED = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def trace_context_of(request: Request) -> dict[str, str]:
    """The request's `traceparent` and `tracestate`; empty = it is not traced."""
    parent = header(request, PARENT.encode())
    if not parent or not WELL_FORMED.fullmatch(parent):
        return {}
    state = header(request, STATE.encode())
    if not state or len(state) > STATE_BYTES_MAX or not (state.isascii() and state.isprintable()):
        return {PARENT: parent}
    return {PARENT: parent, STATE: state}


def carry_context(message: dict[str, Any], context: dict[str, str]) -> None:
    """Put the context into a message's headers; headers that are none are left to the check."""
    headers = message.get("headers")
    headers = {} if headers is None else headers
    if isinstance(headers, dict) and all(isinstance(value, str) for value in headers.values()):
        message["headers"] = with_context(headers, context)
