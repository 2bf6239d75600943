"""The checker of the crash tests finds each fault that is planted: one that can't proves
nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.history import Delivery, History


def whole() -> History:
    """One message of each fate, all well."""
    return History(
        tried={"a": b"a", "c": b"c", "m": b"m"},
        sent={"a": 10, "c": 10, "m": 10},
        moved={"m": 20},
        moved_us={"m": 9_000},
        cancelled_us={"c": 5_000},
        acked_us={"a": 11_000},
        deliveries=[
            Delivery("a", 1, 1, 10, b"a", 10_000),
            Delivery("m", 3, 1, 20, b"m", 20_000),
        ],
    )


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert whole().faults() == []


def add(delivery: Delivery) -> Callable[[History], None]:
    return lambda history: history.deliveries.append(delivery)


PLANTED: dict[str, tuple[Callable[[History], object], str]] = {
    "lost": (lambda h: h.sent.update(x=1), "x was acknowledged and never delivered"),
    "early": (
        lambda h: h.moved.update(m=21),
        "m came 1000 µs before it was due",
    ),
    "altered": (lambda h: h.tried.update(a=b"z"), "bytes that nobody sent"),
    "after ack": (add(Delivery("a", 1, 2, 10, b"a", 11_001)), "a was delivered after its ack"),
    "after cancel": (add(Delivery("c", 2, 1, 10, b"c", 12_000)), "c was delivered after its canc"),
    "both": (lambda h: h.cancelled_us.update(a=9_000), "a was acked and cancelled"),
    "leased twice": (add(Delivery("m", 3, 1, 20, b"m", 20_001)), "attempt 1 of m was delivered"),
    "stored twice": (add(Delivery("m", 4, 2, 20, b"m", 20_001)), "m exists as two messages"),
}


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.replace(" ", "-"))
def test_a_planted_fault_is_found(fault: str) -> None:
    plant, text = PLANTED[fault]
    history = whole()
    plant(history)
    assert any(text in found for found in history.faults())
