"""What DOQ's clients may send: defaults, bounds, and fields that nobody knows.

Not covered: what the routes make of it (test_routes.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from dejaqueue import limits
from dejaqueue.http.doq import shapes

MESSAGE: dict[str, Any] = {"content": "a", "priority": 0}
QUEUE: dict[str, Any] = {"name": "q", "type": "delayed"}


def test_what_a_message_leaves_out_has_doq_s_default() -> None:
    found = shapes.DoqNewMessage.model_validate(MESSAGE)
    assert (found.id, found.group, found.metadata) == ("", "default", None)


def test_what_a_queue_leaves_out_has_doq_s_default() -> None:
    settings = shapes.DoqNewQueue.model_validate(QUEUE).settings
    assert (settings.strategy, settings.max_unacked, settings.ack_timeout) == ("", 0, 0)


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        (shapes.DoqNewMessage, MESSAGE | {"priority": shapes.PRIORITY_MAX}),
        (shapes.DoqNewIds, {"number": shapes.IDS_MAX}),
        (shapes.DoqNewQueue, QUEUE | {"settings": {"ack_timeout": limits.LEASE_MS_MAX // 1_000}}),
        (shapes.DoqNewQueue, QUEUE | {"type": "fair", "settings": {"max_unacked": 0}}),
    ],
)
def test_bounds_are_within_reach(shape: type[BaseModel], values: dict[str, Any]) -> None:
    taken = shape.model_validate(values).model_dump()
    assert all(taken[name] == value for name, value in values.items() if name != "settings")


@pytest.mark.parametrize(
    ("shape", "values", "field"),
    [
        (shapes.DoqNewMessage, MESSAGE | {"colour": 1}, "colour"),
        (shapes.DoqNewMessage, {"content": "a"}, "priority"),
        (shapes.DoqNewMessage, MESSAGE | {"priority": -1}, "priority"),
        (shapes.DoqNewMessage, MESSAGE | {"priority": shapes.PRIORITY_MAX + 1}, "priority"),
        (shapes.DoqNewMessage, MESSAGE | {"priority": "1"}, "priority"),
        (shapes.DoqNewMessage, MESSAGE | {"content": 5}, "content"),
        (shapes.DoqNewMessage, MESSAGE | {"content": "\ud800"}, "content"),
        (shapes.DoqNewMessage, MESSAGE | {"metadata": {"a": 1}}, "metadata"),
        (shapes.DoqNewIds, {"number": 0}, "number"),
        (shapes.DoqNewIds, {"number": shapes.IDS_MAX + 1}, "number"),
        (shapes.DoqNewQueue, QUEUE | {"type": "quick"}, "type"),
        (shapes.DoqNewQueue, QUEUE | {"settings": {"colour": 1}}, "settings"),
        (shapes.DoqChangedQueue, {}, "settings"),
        (shapes.DoqNewPriority, {}, "priority"),
    ],
)
def test_what_is_wrong_is_named(shape: type[BaseModel], values: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as found:
        shape.model_validate(values)
    assert [error["loc"][0] for error in found.value.errors()] == [field]
