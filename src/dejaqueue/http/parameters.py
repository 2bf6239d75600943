"""Parameters of a request's address, and pages: what browsing routes share.

Room: http.
Holds: an unknown parameter is refused with its name (rule 15); what a page gives as `next` is what
the next one takes as `after`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, Query, Request

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.http.columns import instants
from dejaqueue.times import parse_span_ms
from dejaqueue.wire.descriptors import check_fields

InstantText = Annotated[
    str | None, Query(description="UTC milliseconds, or ISO 8601 with a zone.", max_length=64)
]
TextList = Annotated[list[str] | None, Query(max_length=16)]
State = Literal["scheduled", "ready", "leased", "dead", "staged", "staged_ack"]
Priority = Annotated[int | None, Query(ge=0, le=limits.PRIORITY_MAX)]
AfterText = Annotated[str | None, Query(description="The `next` of the page before.")]


def _matching(
    state: State | None = None,
    group: str | None = None,
    tags_any: TextList = None,
    tags_all: TextList = None,
    tags_none: TextList = None,
    priority_from: Priority = None,
    priority_to: Priority = None,
) -> dict[str, Any]:
    return given(
        state=state,
        group=group,
        tags_any=tags_any,
        tags_all=tags_all,
        tags_none=tags_none,
        priority_from=priority_from,
        priority_to=priority_to,
    )


Matching = Annotated[dict[str, Any], Depends(_matching)]
"""The fields of a selection that are given, but for its due times, which need a conversion."""


def check_names(request: Request, *known: str) -> None:
    """Raise BadRequest for a parameter that is not known."""
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise BadRequest(name, f"one of {', '.join(known)}" if known else "nothing", value)


def instant_ms(value: object, field: str) -> int | None:
    """The instant of a parameter or a field; None where there is none. Raises BadRequest."""
    if value is None:
        return None
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        value = int(value)
    numbers: list[int] = instants([value], field).to_pylist()
    return numbers[0]


def selection_of(where: object, *known: str) -> dict[str, Any]:
    """The fields of a filter in a body, with instants as the broker takes them. Raises BadRequest.

    Args:
        known: the fields that it may have.
    """
    if not isinstance(where, dict):
        raise BadRequest("where", "an object", where)
    check_fields(where, list(known))
    return {
        name: instant_ms(value, name) if name in ("due_from", "due_to") else value
        for name, value in where.items()
    }


def span_ms(text: str, field: str) -> int:
    """The length of time of a parameter. Raises BadRequest."""
    try:
        return parse_span_ms(text)
    except ValueError as wrong:
        raise BadRequest(field, "a length of time, as 60s or 5m", text) from wrong


def to_cursor(following: Any) -> str | None:
    """How to go on, as a text without meaning to others; None = this was the last."""
    if following is None:
        return None
    return base64.urlsafe_b64encode(orjson.dumps(following)).decode().rstrip("=")


def from_cursor(text: object) -> Any:
    """What `to_cursor` was given. Raises BadRequest."""
    if text is None:
        return None
    try:
        if not isinstance(text, str):
            raise ValueError
        padded = text + "=" * (-len(text) % 4)
        return orjson.loads(base64.b64decode(padded.encode(), b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise BadRequest("after", "the `next` of the answer before", text) from None


def given(**values: Any) -> dict[str, Any]:
    """The values that are there."""
    return {name: value for name, value in values.items() if value is not None}
