"""What a request carries: its body within bounds, its JSON, its kinds of content.

Room: http. Decides nothing about messages.
Holds: a body over the limit is refused before it is held whole; what is no JSON is a BadRequest
that names the place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from fastapi import HTTPException, Request

from dejaqueue import limits
from dejaqueue.errors import BadRequest

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
JSON_DEPTH_MAX = 254
"""So deep is what orjson writes; it reads 1,024, which Python's own functions do not take."""


def header(request: Request, name: bytes) -> str:
    """A header's first value; "" if there is none.

    Args:
        name: in small letters.
    """
    for key, value in request.scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return ""


def content_kind(request: Request) -> str:
    """The media type of the body, without parameters; JSON if none is named."""
    return header(request, b"content-type").partition(";")[0].strip().lower() or JSON


def wanted_kind(request: Request, *offered: str) -> str:
    """The kind of answer that is asked for by name; the first offered one if none is."""
    accepted = header(request, b"accept")
    if len(accepted) > 3:
        named = [part.partition(";")[0].strip().lower() for part in accepted.split(",")]
        for kind in named:
            if kind in offered:
                return kind
    return offered[0]


async def read_body(request: Request, byte_count_max: int = limits.BODY_BYTES_MAX) -> bytes:
    """The whole body. Raises HTTPException 413 over the limit, 400 if the client goes away."""
    declared = header(request, b"content-length")
    if len(declared) > 6 and declared.isdigit() and int(declared[:20]) > byte_count_max:
        raise HTTPException(413, f"body: at most {byte_count_max} bytes, got: {declared}")
    chunks: list[bytes] = []
    byte_count = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the client went away")
        chunk: bytes = message.get("body", b"")
        if not chunks and not message.get("more_body", False):
            return chunk
        chunks.append(chunk)
        byte_count += len(chunk)
        if byte_count > byte_count_max:
            raise HTTPException(413, f"body: at most {byte_count_max} bytes")
        if not message.get("more_body", False):
            return b"".join(chunks)


def load_json(content: bytes) -> Any:
    """JSON values, nested at most JSON_DEPTH_MAX deep. Raises orjson.JSONDecodeError.

    >>> load_json(b"[" * 255 + b"]" * 255)
    Traceback (most recent call last):
    ...
    orjson.JSONDecodeError: nested more than 254 deep: line 1 column 1 (char 0)
    """
    values = orjson.loads(content)
    if content.count(b"[") + content.count(b"{") > JSON_DEPTH_MAX:
        try:
            orjson.dumps(values)
        except TypeError:
            text = f"nested more than {JSON_DEPTH_MAX} deep"
            raise orjson.JSONDecodeError(text, "", 0) from None
    return values


def parse_json(
    content: bytes, field: str = "body", load: Callable[[bytes], Any] = load_json
) -> Any:
    """JSON values. Raises BadRequest."""
    try:
        return load(content)
    except orjson.JSONDecodeError as wrong:
        raise BadRequest(field, f"JSON in UTF-8 ({wrong.msg})", content[:64]) from None


def parse_object(content: bytes, known: frozenset[str], field: str = "body") -> dict[str, Any]:
    """A JSON object with known fields; nothing at all is an empty one. Raises BadRequest."""
    if not content:
        return {}
    values = parse_json(content, field)
    if not isinstance(values, dict):
        raise BadRequest(field, "a JSON object", values)
    if not known.issuperset(values):
        name = next(name for name in values if name not in known)
        raise BadRequest(name, f"one of {', '.join(sorted(known))}", values[name])
    return values


async def json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object of any fields; {} if there is none. Raises BadRequest."""
    content = await read_body(request)
    values = parse_json(content) if content else {}
    if not isinstance(values, dict):
        raise BadRequest("body", "a JSON object", values)
    return values


def check_kind(request: Request, *known: str) -> str:
    """The media type of the body, one of these. Raises HTTPException 415."""
    kind = content_kind(request)
    if kind not in known:
        raise HTTPException(415, f"content-type: one of {', '.join(known)}, got: {kind[:100]}")
    return kind


def query_values(request: Request, *known: str) -> dict[str, str]:
    """The parameters of the address, each once at most. Raises BadRequest for an unknown one."""
    if not request.scope.get("query_string"):
        return {}
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known or name in values:
            limit = f"once, one of {', '.join(known)}" if known else "no parameters"
            raise BadRequest(name, limit, value)
        values[name] = value
    return values


def whole(values: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    """A whole number of a request; the default where there is none. Raises BadRequest."""
    value = values.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise BadRequest(name, f"a whole number from {low} to {high}", value)
    return value


def yes_or_no(values: dict[str, Any], name: str) -> bool:
    """True or false of a request; false where there is none. Raises BadRequest."""
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(name, "true or false", value)
    return bool(value)
