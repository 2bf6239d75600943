"""What a message carries: bytes, a text, or a value as JSON; and such a value read again.

Room: client. Python values and bytes only; no Arrow.
Holds: JSON is compact UTF-8 as RFC 8259 has it (no NaN, no half surrogates), so that any other
program reads it; what JSON cannot say is a BadRequest that names its place.
See: inputs.py and sent.py, which make columns of it.
"""

from __future__ import annotations

import json as json_texts
from typing import Any, Final

import pyarrow as pa

from dejaqueue.client.sending.fields import text_of
from dejaqueue.errors import BadRequest

NOTHING: Final = object()
"""The default of `json=`: None is a value, as JSON says null."""
_LIMIT = "a value that JSON can say: dict, list, text, number, bool or None"


def content_of(payload: object, json: object = NOTHING, where: str = "") -> bytes:
    """The bytes of a message.

    Args:
        payload: bytes; a text is encoded as UTF-8. None = `json` is given.
        json: instead: any value that JSON can say, None too.
        where: what the fields belong to, for errors' texts, with a dot behind it.

    Raises:
        BadRequest: neither or both are given, or it is not of that kind.
    """
    if type(payload) is bytes and json is NOTHING:
        return payload
    if json is NOTHING:
        return payload_of(payload)
    if payload is not None:
        raise BadRequest(f"{where}json", "payload or json, not both", json)
    return json_of(json, f"{where}json")


def payload_of(payload: object) -> bytes:
    """The bytes of a payload; a text is encoded as UTF-8. Raises BadRequest."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return text_of("payload", payload).encode()
    if isinstance(payload, bytearray | memoryview | pa.Buffer):
        return bytes(payload)
    raise BadRequest("payload", "bytes or str", type(payload).__name__)


def json_of(value: object, field: str = "json") -> bytes:
    """A value as compact JSON.

    Raises:
        BadRequest: JSON cannot say it; the field's name leads to the part that it cannot say, as
            `json.lines[3].price`.
    """
    try:
        return _dumped(value)
    except (TypeError, ValueError, RecursionError) as wrong:
        place, part = _culprit(value, field)
        shown = part if isinstance(part, str | int | float) else type(part).__name__
        raise BadRequest(place, f"{_LIMIT} ({_why(wrong)})", shown) from None


def _dumped(value: object) -> bytes:
    text = json_texts.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _why(wrong: Exception) -> str:
    if isinstance(wrong, RecursionError):
        return "nested too deeply"
    if isinstance(wrong, UnicodeEncodeError):
        return "a text with half surrogates"
    return str(wrong)


def _culprit(value: object, field: str) -> tuple[str, object]:
    """The innermost part of a value that cannot be said, and where it is."""
    seen: set[int] = set()
    while id(value) not in seen:  # a list may hold itself
        seen.add(id(value))
        parts: Any = ()
        if isinstance(value, dict):
            parts = ((f"{field}.{key}", part) for key, part in value.items())
        elif isinstance(value, list | tuple):
            parts = ((f"{field}[{index}]", part) for index, part in enumerate(value))
        bad = next((found for found in parts if not _is_sayable(found[1])), None)
        if bad is None:
            break
        field, value = bad
    return field, value


def _is_sayable(value: object) -> bool:
    try:
        _dumped(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def json_in(payload: bytes, message_id: int) -> Any:
    """The value that a payload says as JSON. Raises BadRequest, which names the message."""
    try:
        return json_texts.loads(payload.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as wrong:
        limit = f"JSON in UTF-8 ({_reason(wrong)})"
        raise BadRequest(f"payload of message {message_id}", limit, payload[:60]) from None


def _reason(wrong: Exception) -> str:
    return "nested too deeply" if isinstance(wrong, RecursionError) else str(wrong)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
