"""The fields of one message, checked before they become columns.

Room: client. Python values only; no Arrow.
Holds: what passes fits its column as it is (nothing is cut, rounded or dropped); what does not is a
BadRequest that names the field, the limit and the value.
See: inputs.py for whole tables; schema/checks.py for what the broker checks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dejaqueue import limits
from dejaqueue.errors import BadRequest


def text_of(field: str, value: object) -> str:
    """A text that UTF-8 can carry. Raises BadRequest."""
    if not isinstance(value, str):
        raise BadRequest(field, "a text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadRequest(field, "a text without half surrogates", value) from None
    return value


def key_of(field: str, value: object) -> str | None:
    """A key; None = the message has none. Raises BadRequest.

    An empty text is refused: it usually is a variable that was never filled, and a message without
    a key cannot be cancelled by it later.
    """
    if value is None:
        return None
    key = text_of(field, value)
    if not key:
        raise BadRequest(field, f"from 1 to {limits.KEY_BYTES_MAX} bytes, or None for no key", key)
    return key


def group_of(field: str, value: object) -> str:
    """A group; "" or None = none. Raises BadRequest."""
    return "" if value is None else text_of(field, value)


def priority_of(field: str, value: object) -> int:
    """A priority; None = the default. Raises BadRequest."""
    if value is None:
        return limits.PRIORITY_DEFAULT
    limit = f"a whole number from 0 to {limits.PRIORITY_MAX}"
    # bool has __index__ too, and True is no urgency that anybody means.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise BadRequest(field, limit, value)
    priority = int(value.__index__())
    if not 0 <= priority <= limits.PRIORITY_MAX:
        raise BadRequest(field, limit, priority)
    return priority


def tags_of(field: str, value: object) -> list[str] | None:
    """The tags of a message; None = it has none. Raises BadRequest."""
    if value is None:
        return None
    if isinstance(value, str | bytes | Mapping) or not isinstance(
        value, Sequence | set | frozenset
    ):
        raise BadRequest(field, "several texts", value)
    return [text_of(f"{field}[{index}]", tag) for index, tag in enumerate(value)] or None


def headers_of(field: str, value: object) -> list[tuple[str, str]] | None:
    """The headers of a message as pairs; None = it has none. Raises BadRequest."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = list(value.items())
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise BadRequest(field, "texts by name", value)
    pairs: list[tuple[str, str]] = []
    for pair in value:
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
            raise BadRequest(field, "texts by name", pair)
        name = text_of(f"name in {field}", pair[0])
        pairs.append((name, text_of(f"{field}[{name!r}]", pair[1])))
    return pairs or None


CHECKS: dict[str, Callable[[str, object], Any]] = {
    "key": key_of,
    "group": group_of,
    "priority": priority_of,
    "tags": tags_of,
    "headers": headers_of,
}
"""What checks a field of a message that was given as a dict, by the field's name."""
