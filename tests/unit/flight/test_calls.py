"""Calls are counted by method and by how they ended, out of a small set of words.

Not covered: real calls (tests/integration/test_metrics.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.counting import BrokerCounts
from dejaqueue.flight.callers import Callers
from dejaqueue.flight.calls import CallCounter, OpenCalls, status_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "ok"),
        (flight.FlightUnavailableError("x"), "unavailable"),
        (flight.FlightUnauthenticatedError("x"), "unauthenticated"),
        (flight.FlightUnauthorizedError("x"), "unauthorized"),
        (pa.ArrowInvalid("x"), "invalid"),
        (pa.ArrowKeyError("x"), "not_found"),
        (flight.FlightInternalError("x"), "internal"),
        (RuntimeError("x"), "internal"),
    ],
)
def test_how_a_call_ended(error: BaseException | None, status: str) -> None:
    assert status_of(error) == status


def test_call_that_did_not_end_is_open() -> None:
    counts = BrokerCounts()
    open_calls, broker = OpenCalls(), cast(Any, SimpleNamespace(counting=counts))
    counter = CallCounter(broker, Callers(Gate()), open_calls)
    info = cast(Any, SimpleNamespace(method=flight.FlightMethod.DO_PUT))
    first, _second = counter.start_call(info, {}), counter.start_call(info, {})
    first.call_completed(None)
    assert counts.flight_begun.read() == {("do_put",): 2}
    assert counts.flight_ended.read() == {("do_put", "ok"): 1}
    assert open_calls.count == 1
