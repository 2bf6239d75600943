"""Headers of a Flight call in, a principal or a refusal out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyarrow import flight

from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import KeyRing
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.clock import SystemClock
from dejaqueue.flight.callers import Callers

CALL = SimpleNamespace(method=SimpleNamespace(name="DO_PUT"))


def test_without_keys_everybody_is_let_in() -> None:
    assert Callers(Gate()).start_call(CALL, {}).principal is EVERYBODY


def test_with_keys_only_a_bearer_is_let_in() -> None:
    gate = Gate()
    key, text = gate.keys.create("root", ["admin:*"])
    callers = Callers(gate)
    headers: dict[str, list[str | bytes]] = {"authorization": [f"Bearer {text}"]}
    assert callers.start_call(CALL, headers).principal == key.principal
    refused: tuple[dict[str, list[str | bytes]], ...] = (
        {},
        {"authorization": []},
        {"authorization": [text]},
        {"authorization": [f"Bearer {text}", f"Bearer {text}"]},
        {"authorization": [b"Bearer " + text.encode()]},
    )
    for wrong in refused:
        with pytest.raises(flight.FlightUnauthenticatedError):
            callers.start_call(CALL, wrong)


def test_before_the_keys_are_read_nobody_is_let_in() -> None:
    callers = Callers(Gate(KeyRing(SystemClock())))
    with pytest.raises(flight.FlightUnavailableError):
        callers.start_call(CALL, {})
