"""The shapes say what the checks do."""

from __future__ import annotations

from dejaqueue.http import columns, shapes
from dejaqueue.http.openapi import PARTS, _schemas


def test_fields_of_a_message_are_those_that_are_taken() -> None:
    assert set(_schemas()["NewMessage"]["properties"]) == columns.FIELDS


def test_every_shape_refuses_unknown_fields() -> None:
    for name, schema in _schemas().items():
        [model] = {getattr(part, name) for part in PARTS if hasattr(part, name)}
        if issubclass(model, shapes.Shape):
            assert schema["additionalProperties"] is False, name
