"""Answers that are no success, as errors: problem details (RFC 9457) by their number.

Room: client. Bytes in, errors out; opens nothing.
Holds: a broker's error comes out as the class that it was there, with its text and fields; what a
proxy or the framework answers becomes the class that says whose move it is.
See: docs/reference/errors.md; docs/guides/http.md.
"""

from __future__ import annotations

import json
from typing import Any

from dejaqueue_client.errors import (
    BadRequest,
    DejaQError,
    Forbidden,
    Refused,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    from_fields,
)

_UNAVAILABLE = (408, 502, 503, 504)
"""What a broker that starts, or whoever stands before one, answers: the same call may succeed."""


def error_of(status: int, content: bytes, where: str) -> DejaQError:
    """The error of an answer.

    Args:
        status: 400 or above, or one that nobody expected.
        where: which request it was, for an answer that does not say.
    """
    problem = _problem(content)
    if isinstance(problem.get("number"), int) and problem["number"]:
        try:
            return from_fields(
                {"number": problem["number"], "text": problem.get("detail", ""), "fields": problem}
            )
        except (ValueError, TypeError, OverflowError):
            problem = {}
    said = str(problem.get("detail") or problem.get("title") or "").strip()
    return _by_status(status, f"{where}: {said or f'HTTP status {status}'}")


def unavailable(text: str, *, is_unheard: bool = False) -> Unavailable:
    """The error of a request that has no answer.

    Args:
        is_unheard: nobody was reached, so nothing can have happened.
    """
    error = Unavailable(text)
    error.is_unheard = is_unheard
    return error


def _problem(content: bytes) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _by_status(status: int, text: str) -> DejaQError:
    if status == 429:
        return ResourceExhausted(text)
    if status in _UNAVAILABLE:
        return Unavailable(text)
    kinds: dict[int, type[DejaQError]] = {401: Unauthenticated, 403: Forbidden, 409: Refused}
    kind = kinds.get(status, BadRequest if 400 <= status < 500 else DejaQError)
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    if isinstance(error, BadRequest):
        error.field, error.limit, error.value = "request", text, status
    return error
