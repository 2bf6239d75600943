"""Filters of a query that the broker can apply, as fields of a scan.

Room: spark. Runs on the driver.
Holds: what is not understood to the last detail is left to Spark.
See: broker/calls/browse.py for the fields; docs/guides/spark.md for the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from dejaqueue import limits

_ALWAYS = {"id", "due", "attempts", "priority", "payload", "state", "partition", "topic"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATES = ("scheduled", "leased")


class Pushed:
    """What is asked of the broker.

    Attributes:
        fields: of a scan's ticket.
        ids, keys, partitions: only these; None = all.
    """

    def __init__(self, state: str) -> None:
        self.fields: dict[str, Any] = {"state": state} if state else {}
        self.ids: set[int] | None = None
        self.keys: set[str] | None = None
        self.partitions: set[int] | None = None

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take the filters that the broker can apply; the others come back."""
        return [one for one in filters if not self._take(one)]

    def _take(self, one: Filter) -> bool:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            return False
        name = path[0]
        match one:
            case IsNotNull():
                return name in _ALWAYS
            case EqualTo() | EqualNullSafe():
                return self._equal(name, [one.value])
            case In():
                return self._equal(name, list(one.value))
            case GreaterThanOrEqual():
                return self._from(name, one.value, 0)
            case GreaterThan():
                return self._from(name, one.value, 1)
            case LessThan():
                return self._to(name, one.value, 0)
            case LessThanOrEqual():
                return self._to(name, one.value, 1)
        return False

    def _equal(self, name: str, values: list[Any]) -> bool:
        values = [value for value in values if value is not None]
        if not values or len(values) > limits.PEEK_ROWS_MAX:
            return False
        if name == "id" and all(type(value) is int for value in values):
            self.ids = set(values) if self.ids is None else self.ids & set(values)
            return True
        if name == "partition" and all(type(value) is int for value in values):
            mine = set(values)
            self.partitions = mine if self.partitions is None else self.partitions & mine
            return True
        if name == "key" and all(isinstance(value, str) and value for value in values):
            self.keys = set(values) if self.keys is None else self.keys & set(values)
            return True
        if len(values) > 1:
            return False
        value = values[0]
        if name in ("due", "priority"):
            return self._from(name, value, 0) and self._to(name, value, 1)
        known = isinstance(value, str) and (value in _STATES if name == "state" else bool(value))
        if name not in ("group", "state") or not known or name in self.fields:
            return False
        self.fields[name] = value
        return True

    def _from(self, name: str, value: Any, more: int) -> bool:
        """The column is at least `value`, or above it."""
        low = first_ms(value, more) if name == "due" else _whole(value, more)
        if low is None or name not in ("due", "priority"):
            return False
        most = limits.INSTANT_MS_MAX if name == "due" else limits.PRIORITY_MAX
        field = f"{name}_from"
        if low > most:
            return False  # nothing is, and Spark will find that out
        self.fields[field] = max(self.fields.get(field, 0), low, 0)
        return True

    def _to(self, name: str, value: Any, more: int) -> bool:
        """The column is below `value`, or at most it."""
        end = first_ms(value, more) if name == "due" else _whole(value, more)
        if end is None or end < 1 or name not in ("due", "priority"):
            return False
        if name == "due":
            most = limits.INSTANT_MS_MAX + 1
            self.fields["due_to"] = min(self.fields.get("due_to", most), end)
        else:
            most = limits.PRIORITY_MAX
            self.fields["priority_to"] = min(self.fields.get("priority_to", most), end - 1)
        return True


def _whole(value: Any, more: int) -> int | None:
    return value + more if type(value) is int else None


def first_ms(value: Any, more: int) -> int | None:
    """The first millisecond that is at least (or above, if `more`) a number or a time."""
    if isinstance(value, datetime):
        since = (value if value.tzinfo else value.astimezone()) - _EPOCH
        micros = since // timedelta(microseconds=1)
        return -(-(micros + more) // 1000)
    return _whole(value, more)
