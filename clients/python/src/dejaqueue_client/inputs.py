"""What users give, made into the JSON of the HTTP API.

Room: client. Python values only; no connections.
Holds: what comes out is what the API takes; anything else is a BadRequest that names the field,
what it should be, and what came (rule 15), in the words of DejaQ's other client.
See: fields.py and content.py for the parts of a message.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from dejaqueue_client import limits
from dejaqueue_client.content import NOTHING, content_of
from dejaqueue_client.errors import BadRequest
from dejaqueue_client.fields import group_of, headers_of, key_of, priority_of, tags_of

ROWS_MAX = 8_192
"""Messages of one request."""
BYTES_MAX = 8 << 20
"""Bytes of payloads of one request, about."""
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_INSTANT = f"UTC milliseconds: 0, or from {limits.INSTANT_MS_MIN} to {limits.INSTANT_MS_MAX}"

Values = dict[str, Any]

# --- times --------------------------------------------------------------------------------------


def due_ms_of(due: object, field: str = "due", *, is_bound: bool = False) -> int:
    """UTC milliseconds of a due time.

    Args:
        is_bound: it bounds a range of due times, so small numbers are no mistake.

    Raises:
        BadRequest: it is a naive datetime (nobody knows its time zone), out of range, or neither
            a datetime nor a whole number of milliseconds.
    """
    if isinstance(due, datetime):
        if due.tzinfo is None:
            limit = "a datetime with a time zone, as datetime(..., tzinfo=timezone.utc)"
            raise BadRequest(field, limit, due)
        since = due - _EPOCH
        # Rounded up: handing over a part of a millisecond early would still be early.
        micros = since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
        due_ms = -(-micros // 1_000)
    elif hasattr(due, "__index__") and not isinstance(due, bool):
        due_ms = int(due.__index__())
    else:
        raise BadRequest(field, "a datetime with a time zone, or UTC milliseconds", due)
    is_small = 0 < due_ms < limits.INSTANT_MS_MIN
    if due_ms < 0 or due_ms > limits.INSTANT_MS_MAX or (is_small and not is_bound):
        hint = " (this looks like seconds: multiply by 1000)" if is_small else ""
        raise BadRequest(field, f"{_INSTANT}{hint}", due_ms)
    return due_ms


def delay_ms_of(delay: object, field: str = "delay") -> int:
    """Milliseconds of a delay: a timedelta, or seconds. Raises BadRequest."""
    if isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        seconds = float(delay)
    else:
        raise BadRequest(field, "a timedelta, or seconds", delay)
    if not 0 <= seconds * 1_000 <= limits.INSTANT_MS_MAX:  # not a number fails this, too
        raise BadRequest(field, "not negative, and within the year 9999", delay)
    return round(seconds * 1_000)


def shift_ms_of(by: object, field: str = "by") -> int:
    """Milliseconds of a shift, a timedelta or seconds; may be negative. Raises BadRequest."""
    if isinstance(by, timedelta):
        by = by.total_seconds()
    if isinstance(by, int | float) and by < 0:
        return -delay_ms_of(-by, field)
    return delay_ms_of(by, field)


def lease_ms_of(seconds: object, field: str = "extend") -> int:
    """Milliseconds of a lease, given in seconds or as a timedelta. Raises BadRequest."""
    return check_lease_ms(delay_ms_of(seconds, field))


def check_lease_ms(lease_ms: object) -> int:
    """Return it, or raise BadRequest if no lease is so long."""
    low, high = limits.LEASE_MS_MIN, limits.LEASE_MS_MAX
    return check_whole("lease_ms", lease_ms, low, high)


def check_whole(field: str, value: object, low: int, high: int) -> int:
    """Return the number, or raise BadRequest if it is none, or out of its range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequest(field, f"a whole number from {low} to {high}", value)
    return value


# --- messages to send ---------------------------------------------------------------------------

_FIELDS = ("payload", "json", "due", "delay", "key", "group", "priority", "tags", "headers",
           "expires", "ttl", "partition")  # fmt: skip


def message_of(given: Mapping[str, Any], where: str = "") -> tuple[Values, int]:
    """A message as the API takes it, and the bytes of its payload.

    Args:
        given: the arguments of `send`.
        where: what the fields belong to, for errors' texts, with a dot behind it.

    Raises:
        BadRequest: a value is wrong.
    """
    content = content_of(given.get("payload"), given.get("json", NOTHING), where)
    message = payload_values(content)
    for field, other, name, convert in (
        ("due", "delay", "delay_ms", delay_ms_of),
        ("expires", "ttl", "ttl_ms", delay_ms_of),
    ):
        instant, span = given.get(field), given.get(other)
        if instant is not None and span is not None:
            raise BadRequest(f"{where}{other}", f"{field} or {other}, not both", span)
        if instant is not None:
            message[field] = due_ms_of(instant, f"{where}{field}")
        elif span is not None:
            message[name] = convert(span, f"{where}{other}")
    pairs = headers_of(f"{where}headers", given.get("headers"))
    found: Values = {
        "key": key_of(f"{where}key", given.get("key")),
        "group": group_of(f"{where}group", given.get("group")) or None,
        "tags": tags_of(f"{where}tags", given.get("tags")),
        "headers": None if pairs is None else dict(pairs),
    }
    if given.get("priority") is not None:
        found["priority"] = priority_of(f"{where}priority", given["priority"])
    if given.get("partition") is not None:
        most = limits.PARTITIONS_MAX - 1
        found["partition"] = check_whole(f"{where}partition", given["partition"], 0, most)
    message |= {name: value for name, value in found.items() if value is not None}
    return message, len(content)


def payload_values(content: bytes) -> Values:
    """A payload as the API takes it: as text where it is one, else in base64."""
    try:
        return {"payload": content.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(content).decode("ascii")}


def payload_in(values: Mapping[str, Any]) -> bytes | None:
    """The payload of a message that the API answered; None = the caller may not see it."""
    text = values.get("payload")
    if text is not None:
        return str(text).encode()
    coded = values.get("payload_base64")
    return None if coded is None else base64.b64decode(coded)


def pieces_of(messages: object) -> Iterator[list[Values]]:
    """Messages as the API takes them, as many as travel in one request.

    Args:
        messages: dicts with the arguments of `send`, or bytes or str: payloads.

    Raises:
        BadRequest: a message is wrong; those before it may have come out already.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise BadRequest("messages", "a list of dicts", type(messages).__name__)
    piece: list[Values] = []
    byte_count = 0
    for index, row in enumerate(messages):
        given: Any = {"payload": row} if isinstance(row, bytes | str) else row
        if not isinstance(given, Mapping):
            raise BadRequest(f"messages[{index}]", "a dict, bytes or str", type(row).__name__)
        for name in given:
            if name not in _FIELDS:
                limit = f"one of {', '.join(_FIELDS)}"
                raise BadRequest(f"messages[{index}].{name}", limit, name)
        if "payload" not in given and "json" not in given:
            raise BadRequest(f"messages[{index}].payload", "a value", None)
        message, size = message_of(given, f"messages[{index}].")
        if piece and (len(piece) >= ROWS_MAX or byte_count + size > BYTES_MAX):
            yield piece
            piece, byte_count = [], 0
        piece.append(message)
        byte_count += size
    if piece:
        yield piece


# --- columns: one value for all, or one for each ------------------------------------------------


def ids_of(values: object, field: str = "ids") -> list[int]:
    """Whole numbers, from anything that has some one after another. Raises BadRequest."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise BadRequest(field, "whole numbers", values)
    found = []
    for value in values:
        is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
        if not is_whole or not 0 <= (number := int(value.__index__())) < 1 << 63:
            raise BadRequest(field, "whole numbers, not negative", value)
        found.append(number)
    return found


def texts_of(values: object, field: str) -> list[str]:
    """Several texts. Raises BadRequest."""
    if isinstance(values, str):
        raise BadRequest(field, "several texts; one has a field of its own", values)
    if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable):
        raise BadRequest(field, "texts", values)
    found = list(values)
    for value in found:
        if not isinstance(value, str):
            raise BadRequest(field, "a text in every row", value)
    return found


def filter_tags(values: object, field: str) -> list[str]:
    """Tags to filter by. Raises BadRequest."""
    if isinstance(values, str):
        raise BadRequest(field, "several texts; one tag is a list of one", values)
    return texts_of(values, field)


def named_rows(
    *,
    id: object,  # noqa: A002 - the public name
    ids: object,
    key: object,
    keys: object,
) -> list[Values]:
    """Which messages a call is about, a dict for each. Raises BadRequest."""
    by_name = {"id": id, "ids": ids, "key": key, "keys": keys}
    given = {name: value for name, value in by_name.items() if value is not None}
    if len(given) != 1:
        raise BadRequest("id", "exactly one of id, ids, key, keys", ", ".join(given) or None)
    [(name, value)] = given.items()
    if name in ("id", "ids"):
        return [{"id": str(one)} for one in ids_of([value] if name == "id" else value, name)]
    if name == "key" and not isinstance(value, str):
        raise BadRequest("key", "a text", value)
    return [{"key": one} for one in texts_of([value] if name == "key" else value, name)]


def _each(rows: int, value: object, field: str) -> list[Any]:
    """The values of all rows, from one for all or from one for each."""
    is_one = isinstance(value, str | bytes) or not isinstance(value, Iterable)
    values = [value] * rows if is_one else list(value)  # type: ignore[call-overload]
    if len(values) != rows:
        raise BadRequest(field, f"one, or one for each of the {rows} messages", len(values))
    return values


def changed_rows(
    rows: list[Values],
    *,
    due: object,
    delay: object,
    by: object,
    priority: object,
    group: object,
    if_due: object,
) -> list[Values]:
    """Rows with what changes of them: one value for all, or one for each. Raises BadRequest."""
    times = {"due": due, "delay": delay, "by": by}
    given = [name for name, value in times.items() if value is not None]
    if len(given) > 1:
        raise BadRequest(given[1], "one of due, delay, by", ", ".join(given))
    columns: dict[str, list[Any]] = {}
    for name, field, value, convert in (
        ("due", "due", due, due_ms_of),
        ("delay_ms", "delay", delay, delay_ms_of),
        ("by_ms", "by", by, shift_ms_of),
        ("priority", "priority", priority, lambda one, field: priority_of(field, one)),
        ("group", "group", group, lambda one, field: group_of(field, one)),
    ):
        if value is not None:
            columns[name] = [convert(one, field) for one in _each(len(rows), value, field)]
    if not columns:
        raise BadRequest("due", "something that changes: due, delay, by, priority or group", None)
    columns |= condition_column(len(rows), if_due)
    return [row | {n: values[at] for n, values in columns.items()} for at, row in enumerate(rows)]


def condition_column(rows: int, if_due: object) -> dict[str, list[Any]]:
    """When each row has to be due, if that is a condition. Raises BadRequest."""
    if if_due is None:
        return {}
    return {"if_due": [due_ms_of(one, "if_due") for one in _each(rows, if_due, "if_due")]}


def pieces(rows: Sequence[Any], most: int = ROWS_MAX) -> Iterator[Sequence[Any]]:
    """Rows, as many as travel in one request."""
    for first in range(0, len(rows), most):
        yield rows[first : first + most]


# --- what becomes of leased messages ------------------------------------------------------------


def nack_values(delay: object, reason: object, dead: object) -> Values:
    """What a nack says. Raises BadRequest."""
    if not isinstance(reason, str):
        raise BadRequest("reason", "a text", reason)
    if dead and delay is not None:
        raise BadRequest("delay", "none for a message that dies now", delay)
    shown = reason.translate({0x1E: " ", 0x1F: " "}).encode(errors="replace")
    values: Values = {"reason": shown[: limits.REASON_BYTES_MAX].decode(errors="ignore")}
    if delay is not None:
        values["delay_ms"] = delay_ms_of(delay)
    return values | ({"dead": True} if dead else {})
