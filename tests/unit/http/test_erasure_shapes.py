"""Bodies of an erasure, as the API's description shows them, are those of the call."""

from __future__ import annotations

from dejaqueue.access.calls import ACTIONS
from dejaqueue.broker.calls.erasure import SUMS
from dejaqueue.http.erasure_shapes import EraseRequest, ErasureReport


def test_the_shapes_have_what_the_call_has() -> None:
    fields = {"where", *EraseRequest.model_fields}
    assert {"keys", "ids", "origin", "after"} <= fields & set(ACTIONS["erase"].fields) | {"where"}
    assert set(SUMS) <= set(ErasureReport.model_fields)
