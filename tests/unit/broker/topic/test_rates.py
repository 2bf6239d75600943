"""Buckets of producers. The whole way is in rule 14's tests."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue import limits
from dejaqueue.broker.topic.rates import Rates, name_of
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic


def retry_ms(rates: Rates, topic: Topic, name: str, rows: int, now_us: int) -> int:
    """0 = let in."""
    try:
        rates.check(topic, "s", name, rows, now_us)
    except ResourceExhausted as refused:
        return refused.retry_after_ms
    return 0


@given(
    rate=st.integers(1, 5_000),
    steps=st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(1, 3_000)), max_size=30),
)
def test_a_bucket_is_exact(rate: int, steps: list[tuple[int, int]]) -> None:
    """Against fractions: let in if it fits, and the wait is the shortest whole millisecond."""
    rates, topic = Rates(), Topic("t", producer_rate_max=rate)
    used, now_us = Fraction(0), 0
    for passed_us, rows in steps:
        now_us += passed_us
        used = max(Fraction(0), used - Fraction(passed_us * rate, 1_000_000))
        missing = used + min(rows, rate) - rate
        wait_ms = retry_ms(rates, topic, "p", rows, now_us)
        if missing <= 0:
            assert wait_ms == 0
            used += rows
        else:
            assert wait_ms - 1 < missing / rate * 1_000 <= wait_ms


def test_without_a_limit_nothing_is_counted() -> None:
    Rates().check(Topic("t"), "s", "p", 1 << 20, 0)


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    rates, topic = Rates(), Topic("t", producer_rate_max=10)
    assert retry_ms(rates, topic, "p", 10, 5_000_000) == 0
    assert retry_ms(rates, topic, "p", 1, 1_000_000) == 100


def test_producers_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 3)
    rates, topic = Rates(), Topic("t", producer_rate_max=1)
    for number in range(3):
        rates.check(topic, "s", f"p{number}", 1, 0)
    rates.check(topic, "s", "p3", 1, 999_999)
    assert retry_ms(rates, topic, "p1", 1, 999_999) > 0  # the oldest alone had to go
    rates.check(topic, "s", "p4", 1, 1_000_000)
    assert sorted(rates._used) == [("s", "p3"), ("s", "p4")]


def test_who_a_producer_is() -> None:
    unique = "0123456789abcdef" * 2
    assert name_of(f"billing-{unique}") == "billing"
    assert name_of(f"a-b-{unique}") == "a-b"
    assert name_of(unique) == unique
    assert name_of("") == ""
