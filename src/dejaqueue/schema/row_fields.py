"""What single messages have beside payload and due time, before it becomes columns.

Room: schema. Plain Python over a few rows; no Arrow.
Holds: what passes `check_fields` would pass `check_send`, and is refused by the same words if not.
See: send_rows.py, which has them; wire/lane.py, which carries them; packing.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.schema.instants import check_instant
from dejaqueue.schema.packing import RECORD, SEPARATORS, UNIT

_SEPARATORS = re.compile(b"[" + SEPARATORS + b"]")
_UNIT, _RECORD = UNIT.encode(), RECORD.encode()


@dataclass(slots=True)
class Fields:
    """Fields of some rows as they come; None where no row has one.

    Attributes:
        keys, groups: texts in UTF-8, empty where a row has none.
        tags: texts of each row.
        headers: name, value, name, value, … of each row.
        priorities: from 0 to 65,535.
        expires_ms: int64, 0 = never.
    """

    keys: list[bytes] | None = None
    groups: list[bytes] | None = None
    tags: list[list[bytes]] | None = None
    headers: list[list[bytes]] | None = None
    priorities: list[int] | None = None
    expires_ms: list[int] | None = None


@dataclass(slots=True)
class PackedFields:
    """The same, checked, with a text for the tags of a row, and one for its headers."""

    keys: list[bytes] | None = None
    groups: list[bytes] | None = None
    tags: list[bytes] | None = None
    headers: list[bytes] | None = None
    priorities: list[int] | None = None
    expires_ms: list[int] | None = None


def check_fields(fields: Fields, payload_bytes: int) -> PackedFields:
    """The checked fields of rows.

    Args:
        payload_bytes: of all rows; counts for the largest batch.

    Raises:
        BadRequest: names the field, the row, the limit and the value.
    """
    keys = _texts("key", fields.keys, limits.KEY_BYTES_MAX)
    priorities = fields.priorities
    if priorities is not None and all(one == limits.PRIORITY_DEFAULT for one in priorities):
        priorities = None
    groups = _texts("group", fields.groups, limits.GROUP_BYTES_MAX)
    tags, headers = _tags(fields.tags), _headers(fields.headers)
    texts = (keys, groups, tags, headers)
    byte_count = payload_bytes + sum(sum(map(len, text)) for text in texts if text is not None)
    if byte_count > limits.BATCH_BYTES_MAX:
        raise BadRequest("batch", f"at most {limits.BATCH_BYTES_MAX} bytes of texts", byte_count)
    return PackedFields(keys, groups, tags, headers, priorities, _expires(fields.expires_ms))


def _texts(name: str, values: list[bytes] | None, byte_count_max: int) -> list[bytes] | None:
    if values is None or not any(values):
        return None
    _check_utf8(name, values)
    _check_bytes(name, values, byte_count_max)
    return values


def _check_utf8(name: str, values: Iterable[bytes]) -> None:
    for value in values:
        if not value.isascii():
            try:
                value.decode()
            except UnicodeDecodeError:
                raise BadRequest(f"column {name}", "texts in UTF-8", value) from None


def _check_bytes(name: str, values: list[bytes], byte_count_max: int) -> None:
    sizes = list(map(len, values))
    if sizes and (most := max(sizes)) > byte_count_max:
        row = sizes.index(most)
        raise BadRequest(f"{name} of row {row}", f"at most {byte_count_max} bytes", most)


def _tags(tags: list[list[bytes]] | None) -> list[bytes] | None:
    if tags is None:
        return None
    counts = list(map(len, tags))
    if (most := max(counts)) > limits.TAGS_MAX:
        raise BadRequest(f"tags of row {counts.index(most)}", f"at most {limits.TAGS_MAX}", most)
    values = [tag for of_row in tags for tag in of_row]
    if not values:
        return None
    _check_utf8("tags", values)
    _check_bytes("tags", values, limits.TAG_BYTES_MAX)
    _refuse("tags", values, _SEPARATORS.search, "no U+001E or U+001F inside", "a control character")
    _refuse("tags", values, _is_empty, "no empty tag", "")
    return [_UNIT.join(of_row) for of_row in tags]


def _headers(headers: list[list[bytes]] | None) -> list[bytes] | None:
    if headers is None or not any(headers):
        return None
    names = [name for of_row in headers for name in of_row[::2]]
    values = [value for of_row in headers for value in of_row[1::2]]
    for texts in (names, values):
        _check_utf8("headers", texts)
    for texts in (names, values):
        limit = "no U+001E or U+001F inside"
        _refuse("headers", texts, _SEPARATORS.search, limit, "a control character")
    _refuse("headers", names, _is_empty, "no empty name", "")
    packed = [
        _RECORD.join(map(_UNIT.join, zip(of_row[::2], of_row[1::2], strict=True)))
        for of_row in headers
    ]
    _check_bytes("headers", packed, limits.HEADERS_BYTES_MAX)
    return packed


def _is_empty(value: bytes) -> bool:
    return not value


def _refuse(
    name: str, values: list[bytes], is_wrong: Callable[[bytes], object], limit: str, shown: str
) -> None:
    if any(map(is_wrong, values)):
        raise BadRequest(name, limit, shown)


def _expires(expires_ms: list[int] | None) -> list[int] | None:
    if expires_ms is None:
        return None
    for row, instant_ms in enumerate(expires_ms):
        check_instant(f"expires of row {row}", instant_ms)
    return expires_ms if any(expires_ms) else None
